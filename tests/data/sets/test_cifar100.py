import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_data.arrays import cifar_records, unchecked

from fedquilt.base.errors import DataError
from fedquilt.data.sets.cifar10 import read_split
from fedquilt.data.sets.cifar100 import FILES, LABELS, MEAN, STD
from fedquilt.datasets import cifar100

UNCHECKED = unchecked(FILES)


def records(count: int, seed: int) -> np.ndarray:
    fine = np.random.default_rng(seed).integers(0, 100, (count, 1))
    return cifar_records(np.hstack([fine // 5, fine]), seed)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    (tmp_path / "cifar-100-binary").mkdir()
    return tmp_path / "cifar-100-binary"


def test_two_labels_then_pixels(folder: Path) -> None:
    content = records(7, seed=1)
    (folder / "train.bin").write_bytes(content.tobytes())
    coarse, fine = (read_split(UNCHECKED, ["train.bin"], LABELS, take) for take in (0, 1))
    assert coarse.y.tolist() == content[:, 0].tolist()
    assert fine.y.tolist() == content[:, 1].tolist()
    assert torch.equal(coarse.x, fine.x)
    # Red, green, blue; row by row: pixel (row 1, column 2) of green is byte 2 + 1024 + 32 + 2.
    assert fine.x[:, 1, 1, 2].tolist() == content[:, 2 + 1024 + 32 + 2].tolist()


@pytest.mark.parametrize(("place", "label", "most"), [(0, 20, 19), (1, 100, 99)])
def test_wrong_labels(folder: Path, place: int, label: int, most: int) -> None:
    content = records(3, seed=1)
    content[2, place] = label
    (folder / "train.bin").write_bytes(content.tobytes())
    with pytest.raises(DataError, match=f"a label is {label}, expected 0 to {most}"):
        read_split(UNCHECKED, ["train.bin"], LABELS)


def test_records_of_cifar10_are_refused(folder: Path) -> None:
    (folder / "train.bin").write_bytes(bytes(3073 * 2))
    with pytest.raises(DataError, match="6146 bytes are not a multiple of the record size, 3074"):
        read_split(UNCHECKED, ["train.bin"], LABELS)


def test_another_set_by_the_same_name(folder: Path) -> None:
    (folder / "train.bin").write_bytes(records(3, seed=1).tobytes())
    with pytest.raises(DataError, match=FILES.file("train.bin").digest):
        cifar100()


@pytest.mark.usefixtures("folder")
def test_missing() -> None:
    with pytest.raises(DataError, match=r"cifar-100-binary/train.bin is missing.*fedquilt data get cifar100"):
        cifar100(labels="coarse")


@pytest.mark.real_data
def test_the_published_set() -> None:
    if not os.environ.get("FEDQUILT_DATA") or FILES.missing():
        pytest.skip(f"FEDQUILT_DATA names no folder with CIFAR-100. {FILES.where()}")
    for labels, classes in (("fine", 100), ("coarse", 20)):
        data = cifar100(labels=labels)  # type: ignore[arg-type]
        assert torch.bincount(data.train.y).tolist() == [50_000 // classes] * classes
        assert torch.bincount(data.test.y).tolist() == [10_000 // classes] * classes
    for channel in range(3):
        pixels = data.train.x[:, channel].double()
        assert pixels.mean().item() == pytest.approx(MEAN[channel], abs=1e-5)
        assert pixels.std(correction=0).item() == pytest.approx(STD[channel], abs=1e-5)
