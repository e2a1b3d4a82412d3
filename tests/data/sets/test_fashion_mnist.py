import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_data.arrays import write_idx

from fedquilt.base.errors import DataError
from fedquilt.data.sets.fashion_mnist import FILES
from fedquilt.datasets import fashion_mnist


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"fashion-mnist/train-images-idx3-ubyte.gz is missing .*dataset-fashion-mnist"):
        fashion_mnist()


def test_another_set_by_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    write_idx(tmp_path / "fashion-mnist", np.zeros((3, 28, 28)), np.arange(3))
    with pytest.raises(DataError, match=FILES.file("train-images-idx3-ubyte").digest):
        fashion_mnist()


@pytest.mark.real_data
def test_the_published_set() -> None:
    if not os.environ.get("FEDQUILT_DATA") or FILES.missing():
        pytest.skip(f"FEDQUILT_DATA names no folder with Fashion-MNIST. {FILES.where()}")
    data = fashion_mnist(preprocess="standardise")
    assert torch.bincount(data.train.y).tolist() == [6_000] * 10
    assert torch.bincount(data.test.y).tolist() == [1_000] * 10
    assert data.prepare is not None
    x = data.prepare(data.train.x)
    assert x.mean().item() == pytest.approx(0, abs=1e-3)
    assert x.std().item() == pytest.approx(1, abs=1e-3)
