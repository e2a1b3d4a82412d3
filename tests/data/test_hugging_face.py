from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt.data.hugging_face
from fedquilt.data import hugging_face
from fedquilt.errors import DataError, MissingExtraError

library = pytest.importorskip("datasets", reason="needs the extra hugging_face")

VALUES = {"a": [1.0, 2.0, 3.0, 4.0], "b": [5, 6, 7, 8], "label": [0, 1, 2, 1], "who": ["x", "y", "x", "z"]}


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library.disable_progress_bars()
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "data"))


def save(folder: Path, **splits: dict[str, Any]) -> str:
    made = {name: library.Dataset.from_dict(values) for name, values in splits.items()}
    library.DatasetDict(made).save_to_disk(folder)
    return str(folder)


def test_columns_of_numbers(tmp_path: Path) -> None:
    path = save(tmp_path / "set", train=VALUES, test=VALUES)
    data = hugging_face(path, client="who")
    assert data.name == "set"
    assert data.train.x.tolist() == [[1, 5], [2, 6], [3, 7], [4, 8]]
    assert data.train.x.dtype == torch.float32
    assert data.train.y.tolist() == [0, 1, 2, 1]
    assert data.classes == 3
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [0, 1, 0, 2]


def test_a_column_of_arrays(tmp_path: Path) -> None:
    values = {"x": [[[1.0, 2.0]], [[3.0, 4.0]]], "label": [0, 1], "more": [1, 2]}
    path = save(tmp_path / "data" / "deep" / "set", train=values, test=values)
    assert hugging_face("deep/set", features=("x",)).train.x.tolist() == [[[1, 2]], [[3, 4]]]
    with pytest.raises(DataError, match="several columns, of which some hold arrays"):
        hugging_face(path)


def test_images_stay_bytes_with_channels_first(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    features = library.Features({"image": library.Image(), "label": library.Value("int64")})
    made = library.Dataset.from_dict({"image": list(images), "label": [1, 0]}, features=features)
    library.DatasetDict({"train": made, "test": made}).save_to_disk(tmp_path / "set")
    data = hugging_face(str(tmp_path / "set"))
    assert data.train.x.dtype == torch.uint8
    assert np.array_equal(data.train.x.numpy(), images.transpose(0, 3, 1, 2))
    assert data.prepare is not None
    assert data.prepare(data.train.x).max() <= 1


def test_without_a_test_split_a_share_is_held_out(tmp_path: Path) -> None:
    values = {"x": list(range(20)), "label": [k % 2 for k in range(20)]}
    library.Dataset.from_dict(values).save_to_disk(tmp_path / "one")
    for path in (str(tmp_path / "one"), save(tmp_path / "set", train=values)):
        data = hugging_face(path, test_fraction=0.3)
        assert torch.bincount(data.test.y).tolist() == [3, 3]
        assert len(data.train) == 14


def test_numbers_as_targets(tmp_path: Path) -> None:
    rows = {"x": [1.0, 2.0], "y": [0.5, -3.0], "both": [[1.0, 2.0], [3.0, 4.0]]}
    path = save(tmp_path / "set", train=rows, test=rows)
    assert hugging_face(path, label="y", features=("x",), classes=0).train.y.tolist() == [0.5, -3]
    data = hugging_face(path, label="both", features=("x",), classes=0)
    assert (data.test.y.tolist(), data.classes) == ([[1, 2], [3, 4]], 0)
    rows = {"x": [1.0, 2.0], "y": [0.5, None]}
    with pytest.raises(DataError, match="row 2: the target is "):
        hugging_face(save(tmp_path / "other", train=rows), label="y", classes=0)


@pytest.mark.parametrize("who", [["a", None], ["a", ""], [1, None]])
def test_a_client_without_a_name(tmp_path: Path, who: list[Any]) -> None:
    rows = {"x": [1.0, 2.0], "label": [0, 1], "who": who}
    with pytest.raises(DataError, match="row 2, column 'who': is empty"):
        hugging_face(save(tmp_path / "set", train=rows, test=rows), client="who")


def test_other_splits(tmp_path: Path) -> None:
    path = save(tmp_path / "set", train=VALUES, validation={name: values[:2] for name, values in VALUES.items()})
    assert len(hugging_face(path, features=("a",), test="validation").test) == 2
    with pytest.raises(DataError, match="has no split 'dev'; there are: train, validation"):
        hugging_face(path, features=("a",), test="dev")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"x": [1, 2], "y": [0, 1]}, "has no column 'label'; known: x, y"),
        ({"x": ["a", "b"], "label": [0, 1]}, "column 'x': holds text"),
        ({"x": [[1], [1, 2]], "label": [0, 1]}, "column 'x': holds arrays or images of different shapes"),
        ({"x": [1.0, 2.0], "label": [0, -1]}, "row 2: the label is -1"),
        ({"x": [1.0, 2.0], "label": [0, 5]}, "the label is 5, but with 2 classes"),
        ({"x": [1.0, None], "label": [0, 1]}, "row 2: a feature is missing|has empty places"),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        hugging_face(save(tmp_path / "set", train=values, test=values), classes=2)


def test_a_folder_of_parquet_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "set"
    folder.mkdir()
    whole = library.Dataset.from_dict(VALUES)
    whole.to_parquet(folder / "train.parquet")
    whole.to_parquet(folder / "test.parquet")
    assert hugging_face(str(folder), features=("b",)).test.x.ravel().tolist() == [5, 6, 7, 8]
    whole.select([]).to_parquet(folder / "test.parquet")
    with pytest.raises(DataError, match=r"cannot be loaded: .*no data|test: has no rows"):
        hugging_face(str(folder), features=("b",))


def test_a_name_that_cannot_be_loaded() -> None:
    with pytest.raises(DataError, match="hugging_face: no-one/nothing: cannot be loaded"):
        hugging_face("no-one/nothing")


def test_a_loading_script_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "script" / "script.py"
    script.parent.mkdir()
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for path in (script, script.parent):
        with pytest.raises(DataError, match="cannot be loaded"):
            hugging_face(str(path))
    assert not (tmp_path / "ran").exists()
    assert "trust_remote_code" not in inspect.getsource(fedquilt.data.hugging_face)


def test_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fedquilt.data.hugging_face"], "installed", lambda package: False)
    with pytest.raises(MissingExtraError, match=r"fedquilt\[hugging_face\]"):
        hugging_face("anything")
