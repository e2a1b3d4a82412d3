import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from sample_data.arrays import write_hdf5
from torch import nn

from fedquilt.base.errors import DataError, MissingExtraError
from fedquilt.data.data import Data
from fedquilt.datasets import femnist
from fedquilt.experiment.result import Result
from fedquilt.models import softmax_regression

Writers = dict[str, tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    return tmp_path


def writers(sizes: dict[str, int], classes: int = 62, seed: int = 0) -> Writers:
    rng = np.random.default_rng(seed)
    return {
        name: (
            rng.integers(0, 256, (size, 28, 28)).astype(np.float32) / np.float32(255),
            rng.integers(0, classes, size).astype(np.int32),
        )
        for name, size in sizes.items()
    }


def both(folder: Path, train: Writers, test: Writers, stem: str = "fed_emnist") -> None:
    for part, content in (("train", train), ("test", test)):
        columns = {name: {"pixels": pixels, "label": labels} for name, (pixels, labels) in content.items()}
        write_hdf5(folder / f"{stem}_{part}.h5", columns)


def test_reads_tensorflow_federateds_files(folder: Path) -> None:
    train, test = writers({"f0001_41": 3, "f0000_14": 4}), writers({"f0000_14": 1, "f0001_41": 2}, seed=1)
    both(folder, train, test)
    data = femnist()
    assert data.train.ids is not None
    assert data.test.ids is not None
    assert data.train.ids.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert data.test.ids.tolist() == [0, 1, 1]
    assert data.classes == 62
    for split, content in ((data.train, train), (data.test, test)):
        assert split.x.dtype == torch.uint8
        for number, name in enumerate(["f0000_14", "f0001_41"]):
            mine = torch.from_numpy(split.ids == number)
            assert data.prepare is not None
            assert torch.equal(data.prepare(split.x[mine])[:, 0], torch.from_numpy(content[name][0]))
            assert split.y[mine].tolist() == content[name][1].tolist()


def test_digits_alone(folder: Path) -> None:
    content = writers({"a": 3}, classes=10)
    both(folder, content, content, "fed_emnist_digitsonly")
    assert femnist(only_digits=True).classes == 10
    with pytest.raises(DataError, match=r"femnist/fed_emnist_train.h5 is missing"):
        femnist()


def test_a_writer_who_is_tested_only(folder: Path) -> None:
    both(folder, writers({"b": 2}), writers({"a": 1, "b": 1}))
    data = femnist()
    assert data.train.ids is not None
    assert data.test.ids is not None
    assert (data.train.ids.tolist(), data.test.ids.tolist()) == ([0, 0], [1, 0])


PIXELS, LABELS = writers({"a": 2})["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "has no clients in 'examples'"),
        ({"a": (PIXELS[:0], LABELS[:0])}, "has no examples"),
        ({"a": (PIXELS[:1], LABELS)}, "examples/a has 1 images and 2 labels"),
        ({"a": (PIXELS, np.array([0, 62]))}, "examples/a/label must be integers from 0 to 61"),
        ({"a": (PIXELS, np.array([0, -1]))}, "examples/a/label must be integers from 0 to 61"),
        ({"a": (PIXELS, np.array([0.0, 1.0]))}, "examples/a/label must be integers from 0 to 61"),
        ({"a": (PIXELS * 255, LABELS)}, "examples/a/pixels must be numbers from 0 to 1"),
        ({"a": (PIXELS * np.float32("nan"), LABELS)}, "examples/a/pixels must be numbers from 0 to 1"),
        ({"a": (PIXELS[:, :20], LABELS)}, "examples/a/pixels is not an array of examples × 28 × 28"),
        ({"a": (PIXELS, np.int32(3))}, "examples/a/label is not an array of examples"),
    ],
)
def test_wrong_content(folder: Path, content: Writers, message: str) -> None:
    both(folder, content, writers({"a": 1}))
    with pytest.raises(DataError, match=f"fed_emnist_train.h5: {message}"):
        femnist()


def test_a_missing_column(folder: Path) -> None:
    both(folder, writers({"a": 1}), writers({"a": 1}))
    with h5py.File(folder / "fed_emnist_train.h5", "a") as file:
        del file["examples/a/pixels"]
    with pytest.raises(DataError, match=r"fed_emnist_train.h5: examples/a has no column 'pixels'"):
        femnist()


def test_another_file(folder: Path) -> None:
    both(folder, writers({"a": 1}), writers({"a": 1}))
    with h5py.File(folder / "fed_emnist_test.h5", "w") as file:
        file["x"] = [1]
    with pytest.raises(DataError, match=r"fed_emnist_test.h5: has no group 'examples'"):
        femnist()


@pytest.mark.parametrize("content", [b"", b"no HDF5 at all"])
def test_a_damaged_file(folder: Path, content: bytes) -> None:
    both(folder, writers({"a": 1}), writers({"a": 1}))
    (folder / "fed_emnist_train.h5").write_bytes(content)
    with pytest.raises(DataError, match=r"fed_emnist_train.h5: cannot be read"):
        femnist()


def test_a_cut_file(folder: Path) -> None:
    both(folder, writers({"a": 30}), writers({"a": 1}))
    path = folder / "fed_emnist_train.h5"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(DataError, match=r"fed_emnist_train.h5: cannot be read"):
        femnist()


def test_without_h5py(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both(folder, writers({"a": 1}), writers({"a": 1}))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedquilt\[hdf5\]'"):
        femnist()


def test_a_round(folder: Path, train_by_id: Callable[[Data, nn.Module], Result]) -> None:
    both(folder, writers({"a": 7, "b": 12, "c": 3}), writers({"a": 2}))
    result = train_by_id(femnist(), softmax_regression(classes=62))
    assert result.history.records[0]["examples"] == 22


def test_flipped_bytes_are_a_data_error_or_other_values(folder: Path) -> None:
    both(folder, writers({"a": 3, "b": 2}), writers({"a": 1}))
    path = folder / "fed_emnist_train.h5"
    content = path.read_bytes()
    refused: list[str] = []
    for place in np.random.default_rng(0).choice(8_000, size=500, replace=False).tolist():
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            femnist()
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all("fed_emnist_train.h5: " in message for message in refused)


@pytest.mark.parametrize("rows", [400_000, 10**11, 10**16])
def test_rows_that_were_never_written(folder: Path, rows: int) -> None:
    both(folder, writers({"a": 1}), writers({"a": 1}))
    path = folder / "fed_emnist_train.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("examples/a/label", shape=(rows,), dtype=np.int32, chunks=(1,))
        file.create_dataset("examples/a/pixels", shape=(rows, 28, 28), dtype=np.float32, chunks=(1, 28, 28))
    assert path.stat().st_size < 10_000
    with pytest.raises(
        DataError, match=rf"fed_emnist_train.h5: examples/a/label claims {rows:,} rows, .* holds 0 bytes"
    ):
        femnist()


def test_more_than_memory_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both(folder, writers({"a": 300}), writers({"a": 1}))
    monkeypatch.setenv("FEDQUILT_MEMORY", "100kB")
    with pytest.raises(
        DataError, match=r"300 examples would take 240 kB of memory; the limit is 100 kB, from FEDQUILT_ME"
    ):
        femnist()
    monkeypatch.setenv("FEDQUILT_MEMORY", "1MB")
    with pytest.raises(DataError, match=r"examples/a/pixels: 300 rows would take 1.9 MB of memory; the limit is 1 MB"):
        femnist()
    monkeypatch.setenv("FEDQUILT_MEMORY", "2MB")
    assert len(femnist().train) == 300


def test_one_column_that_was_never_written(folder: Path) -> None:
    both(folder, writers({"a": 1}), writers({"a": 1}))
    with h5py.File(folder / "fed_emnist_train.h5", "a") as file:
        del file["examples/a/pixels"]
        file.create_dataset("examples/a/pixels", shape=(10**11, 28, 28), dtype=np.float32, chunks=(1, 28, 28))
    with pytest.raises(DataError, match=r"fed_emnist_train.h5: examples/a/pixels claims"):
        femnist()
