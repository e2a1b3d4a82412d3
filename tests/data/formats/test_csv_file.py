"""Files without a line, or with the first one alone, in every place where a data set reads a CSV file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt.base.errors import DataError
from fedquilt.data.data import Data

FILES = {
    "train.csv": "x,y\n1,0\n2,1\n",
    "test.csv": "x,y\n1,0\n2,1\n",
    "images.csv": "path,label\na.png,1\nb.png,0\n",
    "test_images.csv": "path,label\na.png,1\n",
    "inaturalist-user-120k/federated_train_user_120k.csv": "user_id,image_id,class\n1,a,0\n",
    "inaturalist-user-120k/test.csv": "image_id,class\nb,0\n",
    "inaturalist/iNaturalist_train.csv": "image_id,class,geo_1k\na,0,1\n",
    "inaturalist/iNaturalist_test.csv": "image_id,class\nb,0\n",
    "landmarks-user-160k/federated_train.csv": "user_id,image_id,class\n1,a,0\n",
    "landmarks-user-160k/test.csv": "image_id,class\nb,0\n",
    "landmarks/train_clean.csv": "landmark_id,images\n1,a b\n",
    "landmarks/train_attribution.csv": "id,author\na,x\nb,y\n",
}
READ_BY: dict[tuple[str, ...], Callable[[Path], Data]] = {
    ("train.csv", "test.csv"): lambda home: fedquilt.table(home / "train.csv", "y", test=home / "test.csv"),
    ("images.csv", "test_images.csv"): lambda home: fedquilt.image_folder(
        home, home / "images.csv", test=home / "test_images.csv"
    ),
    ("inaturalist-user-120k",): lambda _: fedquilt.inaturalist(),
    ("inaturalist/",): lambda _: fedquilt.inaturalist("geo_1k", check=False),
    ("landmarks-user-160k",): lambda _: fedquilt.landmarks(),
    ("landmarks/",): lambda _: fedquilt.landmarks(source="raw"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", ["nothing", "empty lines", "first line"])
def test_a_file_without_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kept: str) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    for each, content in FILES.items():
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(content)
    left = {"nothing": "", "empty lines": "\n\n", "first line": FILES[name].split("\n")[0] + "\n"}[kept]
    (tmp_path / name).write_text(left)
    load = next(load for prefixes, load in READ_BY.items() if name.startswith(prefixes))
    why = (
        "has no rows below its first line"
        if kept == "first line"
        else "is empty, or its first line is; the first line must"
    )
    with pytest.raises(DataError, match=f"{name}: {why}"):
        load(tmp_path)
