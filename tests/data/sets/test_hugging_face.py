from __future__ import annotations

import inspect
import pickle
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

import fedquilt.data.sets.hugging_face
from fedquilt.base.errors import DataError, MissingExtraError
from fedquilt.base.records import describe
from fedquilt.data.data import Data
from fedquilt.datasets import hugging_face, image_folder

library = pytest.importorskip("datasets", reason="needs the extra hugging_face")

VALUES: dict[str, list[Any]] = {
    "a": [1.0, 2.0, 3.0, 4.0],
    "b": [5, 6, 7, 8],
    "label": [0, 1, 2, 1],
    "who": ["x", "y", "x", "z"],
}


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
    with pytest.raises(DataError, match="several feature columns, some of which hold arrays"):
        hugging_face(path)


def save_images(folder: Path, images: list[Any], **more: Any) -> str:
    features = library.Features({"image": library.Image(), "label": library.Value("int64")})
    made = library.Dataset.from_dict({"image": images, "label": [k % 2 for k in range(len(images))]}, features=features)
    library.DatasetDict({"train": made, "test": made} | more).save_to_disk(folder)
    return str(folder)


def prepared(data: Data, rows: torch.Tensor) -> torch.Tensor:
    assert data.prepare is not None
    return data.prepare(rows)


def noise(count: int, *shape: int) -> list[np.ndarray[Any, Any]]:
    return list(np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8))


@pytest.mark.parametrize("shape", [(4, 5, 3), (4, 5)], ids=["colours", "grey"])
def test_images_of_one_size_stay_as_they_are(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = noise(3, *shape)
    data = hugging_face(save_images(tmp_path / "set", images))
    assert data.train.x.tolist() == [0, 1, 2]
    assert data.test.x.tolist() == [3, 4, 5]
    assert data.augment is None
    assert data.prepare is not None
    expected = np.stack(images).reshape(3, 4, 5, -1).transpose(0, 3, 1, 2)
    for rows in (data.train.x, data.test.x):
        assert np.array_equal(np.rint(data.prepare(rows).numpy() * 255), expected)


def test_loading_decodes_no_image_and_training_only_those_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_images(tmp_path / "set", noise(40, 30, 20, 3))
    decoded: list[object] = []
    load = PngImageFile.load

    def counted(image: PngImageFile) -> Any:
        decoded.append(image)
        return load(image)

    monkeypatch.setattr(PngImageFile, "load", counted)
    for size in (None, 16):
        decoded.clear()
        data = hugging_face(path, size=size)
        assert not decoded
        assert data.prepare is not None
        data.prepare(data.train.x[5:8])
        assert len({id(image) for image in decoded}) == 3


def test_memory_does_not_grow_with_the_pixels(tmp_path: Path) -> None:
    """20 images of 12 megabytes each, all of one colour, are small files: all decoded, they would take 240 megabytes."""
    path = save_images(tmp_path / "set", [Image.new("RGB", (2000, 2000))] * 20)
    tracemalloc.start()
    try:
        data = hugging_face(path, size=16)
        assert data.prepare is not None
        data.prepare(data.train.x[:2])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 40e6


def test_images_are_brought_to_a_size_and_cut_as_those_of_a_folder(tmp_path: Path) -> None:
    for number, shape in enumerate(((40, 30, 3), (25, 60, 3), (30, 30, 3), (64, 20, 3))):
        Image.fromarray(noise(1, *shape)[0]).save(tmp_path / f"{number}.png")
    paths = [str(tmp_path / f"{number}.png") for number in range(4)]
    rows = "".join(f"{number}.png,{number % 2}\n" for number in range(4))
    (tmp_path / "table.csv").write_text(f"path,label\n{rows}")
    table = tmp_path / "table.csv"
    folder = image_folder(tmp_path, table, size=24, test=table)
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        data = hugging_face(save_images(tmp_path / "set", paths), size=24, scale="imagenet", cache=cache)
        assert (data.ahead, data.at_once) == (folder.ahead, folder.at_once)
        assert torch.equal(prepared(data, data.test.x), prepared(folder, folder.test.x))
        draws = [np.random.default_rng(7) for _ in range(2)]
        assert data.augment is not None
        assert folder.augment is not None
        assert torch.equal(data.augment(data.train.x, draws[0]), folder.augment(folder.train.x, draws[1]))
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 4


def test_images_that_cannot_be_used(tmp_path: Path) -> None:
    path = save_images(tmp_path / "shapes", [*noise(1, 4, 5, 3), *noise(1, 5, 4, 3)])
    data = hugging_face(path)
    with pytest.raises(
        DataError,
        match=r"test: row 2, column 'image': .* 5 × 4 × 3 values, but the first one has 4 × 5 × 3; set",
    ):
        prepared(data, data.test.x)
    assert prepared(hugging_face(path, size=4), data.test.x).shape == (2, 3, 4, 4)
    path = save_images(tmp_path / "none", [*noise(1, 4, 5, 3), None])
    with pytest.raises(DataError, match="train: row 2, column 'image': has no image"):
        prepared(hugging_face(path), data.train.x)
    with pytest.raises(DataError, match=r"scale: .* for grey images use"):
        hugging_face(save_images(tmp_path / "grey", noise(2, 4, 5)), scale="imagenet")
    other = library.Dataset.from_dict({"image": [1, 2], "label": [0, 1]})
    path = save_images(tmp_path / "other", noise(2, 4, 5), test=other)
    with pytest.raises(DataError, match="test: column 'image': holds no images"):
        hugging_face(path)


def test_an_image_whose_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own reader of image folders notes paths, and not the files' bytes."""
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for number in range(4):
        (tmp_path / "set" / f"{number % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(1, 9, 9, 3)[0]).save(tmp_path / "set" / f"{number % 2}" / f"{number}.png")
    data = hugging_face(str(tmp_path / "set"), test_fraction=0.5)
    rows = torch.cat([data.train.x, data.test.x])
    assert prepared(data, rows).shape == (4, 3, 9, 9)
    (tmp_path / "set" / "1" / "3.png").unlink()
    with pytest.raises(DataError, match=r"column 'image': the image .*3\.png cannot be opened: .*No such file"):
        prepared(data, rows)


def test_images_can_be_sent_to_spawned_workers(tmp_path: Path) -> None:
    data = hugging_face(save_images(tmp_path / "set", noise(3, 9, 9, 3)), size=4)
    sent = pickle.loads(pickle.dumps(data))  # noqa: S301 – our own bytes
    assert torch.equal(prepared(sent, sent.test.x), prepared(data, data.test.x))
    assert describe(sent.prepare) == describe(data.prepare)
    assert str(tmp_path) not in describe(data.prepare)


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
        ({"x": [[1], [1, 2]], "label": [0, 1]}, "column 'x': holds arrays of different shapes"),
        ({"x": [1.0, 2.0], "label": [0, -1]}, "row 2: the label is -1"),
        ({"x": [1.0, 2.0], "label": [0, 5]}, "the label is 5, but with 2 classes"),
        ({"x": [1.0, None], "label": [0, 1]}, "row 2: a feature is missing|has empty cells"),
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
    assert "trust_remote_code" not in inspect.getsource(fedquilt.data.sets.hugging_face)


def test_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"fedquilt\[hugging_face\]"):
        hugging_face("anything")
