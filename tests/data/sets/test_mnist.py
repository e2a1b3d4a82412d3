import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_data.arrays import unchecked, write_idx

from fedquilt.base.errors import DataError
from fedquilt.data.sets.mnist import FILES, read_split
from fedquilt.datasets import mnist


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    return tmp_path


UNCHECKED = unchecked(FILES)
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 28, 28))
LABELS = np.array([3, 1, 4, 1, 9])


@pytest.mark.parametrize("name", ["mnist", "MNIST/raw"])
def test_reads_a_small_set(folder: Path, name: str) -> None:
    write_idx(folder / name, IMAGES, LABELS)
    split = read_split("train", UNCHECKED)
    assert split.x.dtype == torch.uint8
    assert split.x.shape == (5, 1, 28, 28)
    assert split.y.tolist() == [3, 1, 4, 1, 9]
    assert np.array_equal(split.x[:, 0].numpy(), IMAGES)


def test_wrong_counts(folder: Path) -> None:
    write_idx(folder / "mnist", IMAGES, LABELS[:4])
    with pytest.raises(DataError, match=r"5 images, but .* has 4 labels"):
        read_split("train", UNCHECKED)


def test_wrong_size(folder: Path) -> None:
    write_idx(folder / "mnist", IMAGES[:, :20], LABELS)
    with pytest.raises(DataError, match="images of 20×28 pixels, expected 28×28"):
        read_split("train", UNCHECKED)


def test_wrong_labels(folder: Path) -> None:
    write_idx(folder / "mnist", IMAGES, LABELS + 1)
    with pytest.raises(DataError, match="a label is 10, expected 0 to 9"):
        read_split("train", UNCHECKED)


def test_another_set_by_the_same_name(folder: Path) -> None:
    write_idx(folder / "mnist", IMAGES, LABELS)
    with pytest.raises(DataError, match=FILES.file("train-images-idx3-ubyte").digest):
        mnist()


def test_missing(folder: Path) -> None:
    with pytest.raises(DataError, match=r"mnist/train-images-idx3-ubyte.gz is missing"):
        mnist()


def needs_mnist() -> None:
    if not os.environ.get("FEDQUILT_DATA"):
        pytest.skip("FEDQUILT_DATA is not set")
    try:
        mnist()
    except DataError as error:
        if "is missing" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.mark.real_data
def test_the_published_set() -> None:
    needs_mnist()
    data = mnist(preprocess="standardise")
    assert data.train.x.shape == (60_000, 1, 28, 28)
    assert data.test.x.shape == (10_000, 1, 28, 28)
    assert data.train.x.dtype == torch.uint8
    # The numbers of each digit, from LeCun's set.
    assert torch.bincount(data.train.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(data.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.prepare is not None
    x = pickle.loads(pickle.dumps(data.prepare))(data.train.x)  # noqa: S301 – our own bytes
    assert x.dtype == torch.float32
    assert x.mean().item() == pytest.approx(0, abs=1e-3)
    assert x.std().item() == pytest.approx(1, abs=1e-3)


@pytest.mark.real_data
def test_scales_of_pixels() -> None:
    needs_mnist()
    data, centred = mnist(), mnist(preprocess="centre")
    assert data.prepare is not None
    assert centred.prepare is not None
    x = data.prepare(data.test.x)
    assert (x.min().item(), x.max().item()) == (0.0, 1.0)
    assert torch.equal(x, data.test.x.float() / 255)
    assert torch.allclose(centred.prepare(data.test.x), x - 0.5, atol=1e-6)
