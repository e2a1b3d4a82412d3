from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.base.errors import DataError
from fedquilt.base.registry import datasets
from fedquilt.data.preprocess import to_unit
from fedquilt.datasets import arrays

X = np.linspace(0, 1, 12).reshape(4, 3)
Y = np.array([0, 2, 1, 0])


def test_types() -> None:
    data = arrays(X, Y.astype(np.int16), torch.ones(2, 3), torch.tensor([0, 1]), name="mine")
    assert data.name == "mine"
    assert data.classes == 3
    assert data.train.x.dtype == data.test.x.dtype == torch.float32
    assert data.train.y.dtype == data.test.y.dtype == torch.int64
    np.testing.assert_allclose(data.train.x.numpy(), X, rtol=1e-6)


def test_bytes_stay_bytes_and_share_memory() -> None:
    x = np.zeros((4, 3), dtype=np.uint8)
    data = arrays(x, Y, x, Y, prepare=to_unit)
    x[0, 0] = 7
    assert data.train.x[0, 0] == 7
    assert data.train.x.dtype == torch.uint8
    assert data.prepare is to_unit


def test_read_only_and_reversed_arrays() -> None:
    fixed = X.copy()
    fixed.flags.writeable = False
    data = arrays(fixed, Y[::-1], X[::-1], Y)
    assert data.train.y.tolist() == [0, 1, 2, 0]
    assert data.test.x[0, 0] == X[3, 0].astype(np.float32)


def test_more_classes_than_seen() -> None:
    assert arrays(X, Y, X, Y, classes=10).classes == 10


def test_sequences_have_a_label_a_place() -> None:
    x = np.array([[0, 1, 2], [1, 2, 3]])
    data = arrays(x, x + 1, x, x + 1)
    assert data.train.x.dtype == torch.int64
    assert data.classes == 5
    assert len(data.train) == 2


def test_it_is_not_in_the_registry() -> None:
    assert "arrays" not in datasets


WRONG: list[tuple[tuple[Any, Any, Any, Any], dict[str, Any], str]] = [
    ((X, Y[:3], X, Y), {}, "x_train has 4 examples, y_train 3 labels"),
    ((X, Y, X[:0], Y[:0]), {}, "x_test and y_test are empty"),
    ((X, Y.astype(float), X, Y), {}, "y_train: labels must be integers, got torch.float64"),
    ((X, Y - 1, X, Y), {}, "y_train: a label is -1; labels start at 0"),
    ((X, Y, X, Y), {"classes": 2}, "a label is 2, but with 2 classes labels go from 0 to 1"),
    ((X, Y, X[:, :2], Y), {}, r"x_train has examples of shape \(3,\), x_test of \(2,\)"),
    ((np.array(["a"] * 4), Y, X, Y), {}, "x_train: must be an array of numbers"),
    ((np.array(1.0), np.array(1), X, Y), {}, "need one row per example"),
]


@pytest.mark.parametrize(("values", "options", "message"), WRONG)
def test_what_is_wrong_is_said(values: tuple[Any, Any, Any, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        arrays(*values, **options)


def test_a_column_of_labels_is_a_row_of_them() -> None:
    x, y = np.zeros((6, 2), dtype=np.float32), np.array([0, 1, 2, 0, 1, 2])
    data = arrays(x, y[:, None], x, y[:, None])
    assert data.train.y.tolist() == y.tolist()


def test_describing_data_does_not_print_it() -> None:
    x, y = np.zeros((6, 2), dtype=np.float32), np.array([0, 1, 2, 0, 1, 2])
    assert repr(arrays(x, y, x, y)) == "Data(arrays: 6 to train, 6 to test, 3 classes)"
