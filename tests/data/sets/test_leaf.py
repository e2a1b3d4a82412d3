from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sample_data.texts import write_leaf

import fedquilt
from fedquilt.base.errors import DataError
from fedquilt.data.data import IGNORED
from fedquilt.data.sets.leaf import LETTERS
from fedquilt.datasets import leaf
from fedquilt.models.char_lstm import char_lstm

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
    with pytest.raises(DataError, match=r"examples of 6 numbers do not fit the shape \[4\]"):
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
        ({"a": (["text"], [0])}, {}, "'a': x holds text, so y must hold the next characters"),
        ({"a": ([["1", "Mon", "q", "me", "Hi"]], [1])}, {}, "'a': x holds lists of strings, as in LEAF's Sent140"),
        ({"a": ([[1]], ["e"])}, {}, "'a': y must hold numbers only"),
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


def window(start: str) -> str:
    return (start + " the quality of mercy is not strain'd;" * 3)[:80]


def test_shakespeare(tmp_path: Path) -> None:
    """LEAF's files of Shakespeare: 80 letters, and the one that comes next, numbered by its published alphabet."""
    write_leaf(
        tmp_path / "train" / "0.json", {"B": ([window("Of"), window("\n}")], ["e", " "]), "A": ([window("0>")], ["Z"])}
    )
    write_leaf(tmp_path / "test" / "0.json", {"B": ([window("[Exit]")], ["!"])})
    data = leaf(tmp_path)
    assert LETTERS == "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
    assert data.classes == len(LETTERS) == 80
    assert data.train.x.dtype == torch.int8
    assert ["".join(LETTERS[number] for number in row) for row in data.train.x.tolist()][1] == window("\n}")
    assert data.train.y.shape == (3, 80)
    assert (data.train.y[:, :-1] == IGNORED).all()
    assert data.train.y[:, -1].tolist() == [LETTERS.index(letter) for letter in "e Z"]
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [1, 1, 0]
    assert data.test.y[0, -1] == 2


def test_shakespeare_trains_in_worker_processes(tmp_path: Path) -> None:
    """The same letter always follows: an LSTM learns that within a few rounds."""
    users = {name: ([window(k * name) for k in range(1, 11)], ["e"] * 10) for name in "abc"}
    write_leaf(tmp_path / "all_data" / "all.json", users)
    data = leaf(tmp_path)
    assert (len(data.train), len(data.test)) == (24, 6)
    model = char_lstm(vocabulary=80, hidden=8, layers=1)
    method = fedquilt.fed_avg(lr=2.0, fraction=1.0, batch=4, epochs=2)
    result = fedquilt.train(model, data, fedquilt.natural(data), method, rounds=3, engine=fedquilt.processes(workers=2))
    assert result.history.accuracy[-1] == 1.0


@pytest.mark.parametrize(
    ("users", "options", "message"),
    [
        ({"a": ([window("é")], ["e"])}, {}, "user 'a': x: 'é' is not one of the 80 characters"),
        ({"a": ([window("“")], ["e"])}, {}, "user 'a': x: '“' is not one of the 80 characters"),
        ({"a": ([window("a")], ["_"])}, {}, "user 'a': y: '_' is not one of the 80 characters"),
        ({"a": ([window("a")], ["of"])}, {}, "user 'a': y: a text of 2 letters, expected 1: 'of'"),
        ({"a": ([window("a")], [""])}, {}, "user 'a': y: a text of 0 letters, expected 1: ''"),
        ({"a": ([""], ["a"])}, {}, "user 'a': x: a text of 0 letters, expected some"),
        ({"a": ([window("a"), "short"], ["e", "e"])}, {}, "user 'a': x: a text of 5 letters, expected 80: 'short'"),
        ({"a": (["long"], ["e"]), "b": (["short"], ["e"])}, {}, r"examples of different shapes: \(4,\) \(user 'a'\)"),
        ({"a": (["text"], ["e"]), "b": ([[1, 2]], [0])}, {}, "some users have text, others numbers: 'a' and 'b'"),
        ({"a": (["text"], ["e"])}, {"shape": (80,)}, "x holds text, which has no shape"),
        ({"a": (["text"], ["e"])}, {"classes": 26}, "the letters of .* are 80 classes; remove this key"),
    ],
)
def test_texts_that_cannot_be_read(tmp_path: Path, users: dict[str, Any], options: Any, message: str) -> None:
    write_leaf(tmp_path / "all_data" / "0.json", users)
    with pytest.raises(DataError, match=message):
        leaf(tmp_path, **options)


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
    with pytest.raises(DataError, match="neither the folders `train` and `test` nor the folder `all_data`"):
        leaf(tmp_path)
    (tmp_path / "all_data").mkdir()
    with pytest.raises(DataError, match=r"has no .json files"):
        leaf(tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        leaf(tmp_path / "nothing")
