import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_data.arrays import cifar_records, unchecked

from fedquilt.base.errors import DataError
from fedquilt.data.sets.cifar10 import FILES, LABELS, MEAN, STD, Preprocess, preprocessing, read_split
from fedquilt.datasets import cifar10

UNCHECKED = unchecked(FILES)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    return tmp_path


def records(count: int, seed: int) -> np.ndarray:
    return cifar_records(np.random.default_rng(seed).integers(0, 10, (count, 1)), seed)


def write(folder: Path, name: str, content: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content.tobytes())


@pytest.mark.parametrize("name", ["cifar-10-batches-bin", "cifar-10", "cifar10", "cifar-10/cifar-10-batches-bin"])
def test_reads_files_in_order(folder: Path, name: str) -> None:
    first, second = records(3, seed=1), records(2, seed=2)
    write(folder / name, "data_batch_1.bin", first)
    write(folder / name, "data_batch_2.bin", second)
    split = read_split(UNCHECKED, ["data_batch_1.bin", "data_batch_2.bin"], LABELS)
    both = np.concatenate([first, second])
    assert split.y.tolist() == both[:, 0].tolist()
    assert split.x.shape == (5, 3, 32, 32)
    # Red, green, blue; row by row: pixel (row 1, column 2) of green is byte 1 + 1024 + 32 + 2.
    assert split.x[:, 1, 1, 2].tolist() == both[:, 1 + 1024 + 32 + 2].tolist()


def test_some_images_of_every_class(folder: Path) -> None:
    content = [records(20, seed) for seed in range(6)]
    for number in range(5):
        write(folder / "cifar10", f"data_batch_{number + 1}.bin", content[number])
    write(folder / "cifar10", "test_batch.bin", content[5])
    labels = np.concatenate(content[:5])[:, 0]
    every, some = cifar10(check=False), cifar10(per_class=2, check=False)
    rows = sorted(row for label in range(10) for row in np.flatnonzero(labels == label)[:2].tolist())
    assert len(rows) == 20
    assert torch.equal(some.train.x, every.train.x[rows])
    assert some.train.y.tolist() == labels[rows].tolist()
    assert torch.equal(some.test.x, every.test.x)


def test_cut_file(folder: Path) -> None:
    write(folder / "cifar10", "test_batch.bin", records(2, seed=1).ravel()[:-1])
    with pytest.raises(DataError, match="6145 bytes are not a multiple of the record size, 3073"):
        read_split(UNCHECKED, ["test_batch.bin"], LABELS)


def test_empty_file(folder: Path) -> None:
    write(folder / "cifar10", "test_batch.bin", np.zeros(0, dtype=np.uint8))
    with pytest.raises(DataError, match="0 bytes"):
        read_split(UNCHECKED, ["test_batch.bin"], LABELS)


def test_wrong_label(folder: Path) -> None:
    content = records(2, seed=1)
    content[1, 0] = 10
    write(folder / "cifar10", "test_batch.bin", content)
    with pytest.raises(DataError, match="a label is 10, expected 0 to 9"):
        read_split(UNCHECKED, ["test_batch.bin"], LABELS)


def test_other_content(folder: Path) -> None:
    write(folder / "cifar10", "test_batch.bin", records(2, seed=1))
    with pytest.raises(DataError, match=FILES.file("test_batch.bin").digest):
        read_split(FILES, ["test_batch.bin"], LABELS)


def test_missing(folder: Path) -> None:
    with pytest.raises(DataError, match=r"cifar-10-batches-bin/data_batch_1.bin is missing"):
        cifar10()


@pytest.mark.parametrize("name", ["standardise", "mcmahan", "none"])
def test_preprocessing_survives_pickling(name: Preprocess) -> None:
    raw = torch.from_numpy(records(4, seed=3)[:, 1:]).view(4, 3, 32, 32)
    prepare, augment = pickle.loads(pickle.dumps(preprocessing(name, MEAN, STD)))  # noqa: S301 – our own bytes
    assert prepare(raw).dtype == torch.float32
    assert (augment is not None) == (name == "mcmahan")
    if augment is not None:
        assert augment(raw, np.random.default_rng(1)).dtype == torch.float32


def test_standardise_by_channel() -> None:
    raw = torch.full((1, 3, 32, 32), 100, dtype=torch.uint8)
    x = preprocessing("standardise", MEAN, STD)[0](raw)
    expected = [(100 - mean) / std for mean, std in zip(MEAN, STD, strict=True)]
    assert x[0, :, 5, 5].tolist() == pytest.approx(expected, rel=1e-5)


def needs_cifar() -> None:
    if not os.environ.get("FEDQUILT_DATA"):
        pytest.skip("FEDQUILT_DATA is not set")
    try:
        cifar10()
    except DataError as error:
        if "is missing" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.mark.real_data
def test_the_published_set() -> None:
    needs_cifar()
    data = cifar10()
    assert data.train.x.shape == (50_000, 3, 32, 32)
    assert data.test.x.shape == (10_000, 3, 32, 32)
    assert torch.bincount(data.train.y).tolist() == [5_000] * 10
    assert torch.bincount(data.test.y).tolist() == [1_000] * 10
    assert data.prepare is not None
    x = data.prepare(data.train.x[:10_000])
    assert x.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=0.05)
    assert x.std((0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=0.05)
    for channel in range(3):
        counts = np.bincount(data.train.x[:, channel].numpy().ravel(), minlength=256)
        values = np.arange(256)
        mean = (counts * values).sum() / counts.sum()
        assert mean == pytest.approx(MEAN[channel], abs=1e-5)
        assert np.sqrt((counts * (values - mean) ** 2).sum() / counts.sum()) == pytest.approx(STD[channel], abs=1e-5)
