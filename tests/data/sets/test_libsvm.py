import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from sample_data.texts import write_svmlight

from fedquilt.base.errors import DataError
from fedquilt.data.fetch.published import all_published
from fedquilt.data.preprocess import to_range
from fedquilt.data.sets.libsvm import SETS, Name, canonical
from fedquilt.datasets import libsvm

# Wei 2022, Table 1: classes, training and test examples, features. It gives vehicle 446 to test, but the set has 846.
TABLE_1 = {
    "a1a": (2, 1605, 30956, 123),
    "svmguide1": (2, 3089, 4000, 4),
    "splice": (2, 1000, 2175, 60),
    "vehicle": (4, 500, 846 - 500, 18),
    "dna": (3, 2000, 1186, 180),
    "pendigits": (10, 7494, 3498, 16),
    "satimage": (6, 4435, 2000, 36),
    "usps": (10, 7291, 2007, 256),
}


def needs(name: str) -> None:
    if not os.environ.get("FEDQUILT_DATA") or all_published()[name].missing():
        pytest.skip(f"FEDQUILT_DATA names no folder with {name}. {all_published()[name].where()}")


def test_every_set_is_known_everywhere() -> None:
    assert list(SETS) == list(get_args(Name)) == list(TABLE_1)


@pytest.mark.real_data
@pytest.mark.parametrize("name", TABLE_1)
def test_counts_of_table_1(name: Name) -> None:
    needs(name)
    classes, train, test, features = TABLE_1[name]
    data = libsvm(name)
    assert data.classes == classes
    assert data.train.x.shape == (train, features)
    assert data.test.x.shape == (test, features)
    assert sorted(set(data.train.y.tolist())) == list(range(classes))
    assert data.train.x.dtype == torch.float32
    # Every feature reaches both ends, unless it never changes.
    low, high = data.train.x.min(dim=0).values, data.train.x.max(dim=0).values
    constant = low == high
    assert set(low[~constant].tolist()) == {-1.0}
    assert set(high[~constant].tolist()) == {1.0}
    assert not data.test.x[:, constant].any()
    about = all_published()[name]
    assert (about.classes, about.train, about.test) == (classes, train, test)


@pytest.mark.real_data
def test_unscaled_features_are_as_published() -> None:
    needs("svmguide1")
    data = libsvm("svmguide1", scale=False)
    # The first line of the file: 1 1:2.617300e+01 2:5.886700e+01 3:-1.894697e-01 4:1.251225e+02
    assert data.train.x[0].tolist() == pytest.approx([26.173, 58.867, -0.1894697, 125.1225])
    assert data.train.y[0] == 1


@pytest.mark.real_data
def test_vehicle_is_split_by_the_seed() -> None:
    needs("vehicle")
    first, again, other = (libsvm("vehicle", scale=False, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.train.x, again.train.x)
    assert not torch.equal(first.train.x, other.train.x)
    for data in (first, other):  # together the parts are the whole set
        rows = np.vstack([np.column_stack([part.y, part.x]) for part in (data.train, data.test)])
        assert len(np.unique(rows, axis=0)) == len(rows) == 846


def write(folder: Path, rows: int, feature: int = 4) -> None:
    for name in ("svmguide1", "svmguide1.t"):
        write_svmlight(folder / "libsvm" / name, rows, feature)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    return tmp_path


def test_missing(folder: Path) -> None:
    with pytest.raises(DataError, match=r"libsvm/svmguide1.xz is missing .*fedquilt data get svmguide1"):
        libsvm("svmguide1")


def test_wrong_number_of_examples(folder: Path) -> None:
    write(folder, rows=3)
    with pytest.raises(DataError, match="3 examples, expected 3089"):
        libsvm("svmguide1")


def test_too_many_features(folder: Path) -> None:
    write(folder, rows=3089, feature=5)
    with pytest.raises(DataError, match="line 1: feature 5, expected 1 to 4"):
        libsvm("svmguide1")


def test_other_numbers(folder: Path) -> None:
    write(folder, rows=3089)
    with pytest.raises(DataError, match=f"differs from the published file: .*{SETS['svmguide1'].train.digest}"):
        libsvm("svmguide1")


def test_other_labels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = SETS["svmguide1"]
    assert about.test is not None
    train, test = replace(about.train, rows=6, digest=None), replace(about.test, rows=6, digest=None)
    monkeypatch.setitem(SETS, "svmguide1", replace(about, train=train, test=test))
    write_svmlight(folder / "libsvm" / "svmguide1", 6, labels=(0, 1, 2))
    write_svmlight(folder / "libsvm" / "svmguide1.t", 6)
    with pytest.raises(DataError, match="libsvm/svmguide1: 3 different labels, expected 2"):
        libsvm("svmguide1")
    write_svmlight(folder / "libsvm" / "svmguide1", 6)
    write_svmlight(folder / "libsvm" / "svmguide1.t", 6, labels=(0, 5))
    with pytest.raises(DataError, match=r"libsvm/svmguide1.t: a label is 5, which .* does not have"):
        libsvm("svmguide1")


def test_the_order_of_examples_does_not_matter_to_the_digest_but_any_number_does() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.integers(3, size=20).astype(float)
    order = rng.permutation(20)
    before = canonical(x, y)
    assert canonical(x[order], y[order]) == before
    x[4, 1] += 1e-12
    assert canonical(x, y) != before


def test_test_values_may_leave_the_range() -> None:
    scaled = to_range(np.array([[-1.0], [0.0], [5.0]]), low=np.array([0.0]), high=np.array([4.0]))
    assert scaled.ravel().tolist() == [-1.5, -1.0, 1.5]
