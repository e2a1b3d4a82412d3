"""The digits that come inside packages."""

import importlib.util
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import DataError, MissingExtraError
from fedquilt.data import Data
from fedquilt.data.labels import stratified
from fedquilt.data.sets.digits import read_table
from fedquilt.datasets import digits, mnist_5k


def test_digits() -> None:
    from sklearn.datasets import load_digits

    data, theirs = digits(), load_digits()
    assert len(data.train) + len(data.test) == len(theirs.target) == 1_797
    ours = torch.cat([data.train.x, data.test.x]).flatten(1)
    assert ours.dtype == torch.float32
    assert (ours.min().item(), ours.max().item()) == (0.0, 1.0)
    rows = {tuple(row) for row in (theirs.data / 16).tolist()}
    assert {tuple(row) for row in ours.tolist()} == rows
    assert data.prepare is None


def test_mnist_5k() -> None:
    data = mnist_5k()
    assert data.train.x.shape == (4_000, 1, 28, 28)
    assert data.train.x.dtype == torch.uint8
    assert torch.bincount(data.train.y).tolist() == [400] * 10
    assert torch.bincount(data.test.y).tolist() == [100] * 10
    assert data.prepare is not None
    x = pickle.loads(pickle.dumps(data.prepare))(data.test.x)  # noqa: S301 – our own bytes
    assert (x.dtype, x.min().item(), x.max().item()) == (torch.float32, 0.0, 1.0)


@pytest.mark.parametrize("load", [digits, mnist_5k])
def test_the_seed_decides_the_split(load: type) -> None:
    def test_part(**arguments: object) -> torch.Tensor:
        data = load(**arguments)
        assert isinstance(data, Data)
        return data.test.x

    assert torch.equal(test_part(), test_part(seed=0))
    assert not torch.equal(test_part(), test_part(seed=1))


def test_mnist_5k_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"the data set mnist_5k .* pip install 'fedquilt\[digits\]'"):
        mnist_5k()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2.0])
def test_fraction_out_of_range(fraction: float) -> None:
    with pytest.raises(ArgumentError, match="digits: test_fraction: must be"):
        digits(test_fraction=fraction)


def test_stratified_shares() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 7])
    train, test = stratified(labels, test_fraction=0.3, seed=0)
    assert np.bincount(labels[test]).tolist() == [30, 15, 2]
    assert sorted([*train, *test]) == list(range(157))


@pytest.mark.parametrize(("fraction", "part"), [(0.01, "test"), (0.99, "training")])
def test_an_empty_part_is_refused(fraction: float, part: str) -> None:
    with pytest.raises(DataError, match=f"leaves the {part} part empty"):
        stratified(np.array([0, 0, 1, 1]), test_fraction=fraction, seed=0)


def test_a_packages_file_may_be_gone() -> None:
    with pytest.raises(DataError, match=r"the package numpy has no file data/none.csv"):
        read_table("numpy", "data/none.csv", columns=3)


def test_a_packages_file_may_be_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "little_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.csv").write_text("a,b\n")
    (package / "numbers.csv").write_text("1,2\n3,4\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_table("little_package", "words.csv", columns=2)
    with pytest.raises(DataError, match="2 columns, expected 3"):
        read_table("little_package", "numbers.csv", columns=3)
    assert read_table("little_package", "numbers.csv", columns=2).tolist() == [[1, 2], [3, 4]]
