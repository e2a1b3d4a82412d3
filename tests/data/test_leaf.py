from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from formats.texts import write_leaf

from fedquilt.data import leaf
from fedquilt.errors import DataError

TRAIN = {"zoe": ([[1, 2], [3, 4]], [0, 1]), "ada": ([[5.5, 6]], [2]), "nil": ([], [])}
TEST = {"zoe": ([[7, 8]], [1]), "new": ([[9, 10]], [0])}


def test_train_and_test(tmp_path: Path) -> None:
    write_leaf(tmp_path / "train" / "0.json", TRAIN)
    write_leaf(tmp_path / "train" / "1.json", {"mia": ([[0, 0]], [1.0])})
    write_leaf(tmp_path / "test" / "0.json", TEST)
    data = leaf(tmp_path)
    assert data.train.x.tolist() == [[1, 2], [3, 4], [5.5, 6], [0, 0]]
    assert data.train.x.dtype == torch.float32
    assert data.train.y.tolist() == [0, 1, 2, 1]
    assert data.classes == 3
    assert data.train.ids is not None
    assert data.test.ids is not None
    assert data.train.ids.tolist() == [2, 2, 0, 1]  # ada, mia, zoe; nil has nothing
    assert data.test.ids.tolist() == [2, 3]  # new is not in the training part


def test_all_data_is_split_by_user(tmp_path: Path) -> None:
    users = {name: ([[k] for k in range(10)], [k % 2 for k in range(10)]) for name in ("a", "b")}
    write_leaf(tmp_path / "all_data" / "all.json", users)
    data = leaf(tmp_path, test_fraction=0.3)
    assert data.train.ids is not None
    assert data.test.ids is not None
    assert np.bincount(data.train.ids).tolist() == [7, 7]
    assert np.bincount(data.test.ids).tolist() == [3, 3]


def test_shape(tmp_path: Path) -> None:
    users = {"a": ([list(range(6))] * 4, [0, 1, 0, 1])}
    write_leaf(tmp_path / "all_data" / "all.json", users)
    data = leaf(tmp_path, shape=(1, 2, 3), test_fraction=0.5)
    assert data.train.x.shape == (2, 1, 2, 3)
    assert data.train.x[0].tolist() == [[[0, 1, 2], [3, 4, 5]]]
    with pytest.raises(DataError, match=r"examples of 6 numbers, which have not the shape \[4\]"):
        leaf(tmp_path, shape=(4,))


@pytest.mark.parametrize(
    ("users", "changes", "message"),
    [
        (TRAIN, {"num_samples": [2, 1]}, "3 users, but 2 numbers of samples"),
        (TRAIN, {"num_samples": [10**12, 1, 0]}, "'zoe': num_samples says 1000000000000, but there are 2 x and 2 y"),
        ({"a": ([[1]], [0, 1])}, {}, "'a': num_samples says 2, but there are 1 x and 2 y"),
        (TRAIN, {"users": None}, "has no 'users'"),
        (TRAIN, {"user_data": {}}, "user 'zoe' has no 'x' and 'y'"),
        (TRAIN, {"users": [1, 2, 3]}, "user 1 has no 'x' and 'y'"),
        ({"a": (["text"], [0])}, {}, "'a': x holds text"),
        ({"a": ([[1]], ["e"])}, {}, "'a': y holds text"),
        ({"a": ([[1]], [[0]])}, {}, "'a': y has more than one label"),
        ({"a": ([[1], [1, 2]], [0, 1])}, {}, "'a': examples of different shapes"),
        ({"a": ([[1]], [0]), "b": ([[1, 2]], [0])}, {}, r"examples of different shapes: \(1,\) \(user 'a'\)"),
        ({"a": ([[1], [2]], [0, -1])}, {}, "the label is -1; labels start at 0"),
        ({"a": ([[1], [2]], [0, 9])}, {}, "the label is 9, but with 3 classes"),
        ({"a": ([[1], [float("nan")]], [0, 1])}, {}, "row 2: a feature is missing"),
        ({"a": ([], [])}, {}, "no user has any examples"),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, users: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    write_leaf(tmp_path / "train" / "0.json", users, **changes)
    write_leaf(tmp_path / "test" / "0.json", users, **changes)
    with pytest.raises(DataError, match=message):
        leaf(tmp_path, classes=3)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "{}", "\udcff"])
def test_not_leafs_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "all_data").mkdir()
    (tmp_path / "all_data" / "a.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=r"a.json: (is not JSON|has no 'users')"):
        leaf(tmp_path)


def test_a_user_in_two_files(tmp_path: Path) -> None:
    for name in ("0.json", "1.json"):
        write_leaf(tmp_path / "all_data" / name, {"a": ([[1]], [0])})
    with pytest.raises(DataError, match="user 'a' is in two files"):
        leaf(tmp_path)


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither folders `train` and `test` nor a folder `all_data`"):
        leaf(tmp_path)
    (tmp_path / "all_data").mkdir()
    with pytest.raises(DataError, match=r"has no .json files"):
        leaf(tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        leaf(tmp_path / "nothing")
