"""Your own data, from NumPy arrays or tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.base.errors import DataError
from fedquilt.data.data import IGNORED, Augment, Data, Prepare, Split

Array = npt.NDArray[Any] | Tensor


def arrays(
    x_train: Array,
    y_train: Array,
    x_test: Array,
    y_test: Array,
    *,
    name: str = "arrays",
    classes: int | None = None,
    prepare: Prepare | None = None,
    augment: Augment | None = None,
) -> Data:
    """Make a data set from arrays of examples and labels.

    Double precision becomes single; everything else stays as it is and, where possible, shares the arrays' memory.
    Labels are whole numbers from 0 to `classes` − 1; without `classes`, the largest label says how many there are. For
    sequences they have a column per position, and −100 marks positions that do not count (padding).

    With `classes=0` the targets are numbers, one per example or a row of them, for a loss such as "mean_squared_error".

    >>> data = arrays(np.zeros((4, 3)), np.array([0, 1, 2, 1]), np.zeros((2, 3)), np.array([2, 0]), name="mine")
    >>> data.train.x.dtype, data.train.y.dtype, data.classes
    (torch.float32, torch.int64, 3)
    >>> arrays(np.zeros((2, 3)), np.array([0.5, 2.0]), np.zeros((1, 3)), np.array([1.0]), classes=0).train.y
    tensor([0.5000, 2.0000])
    """
    train = _split("train", x_train, y_train, numbers=classes == 0)
    test = _split("test", x_test, y_test, numbers=classes == 0)
    if train.x.shape[1:] != test.x.shape[1:]:
        raise DataError(
            f"{name}: x_train has examples of shape {tuple(train.x.shape[1:])}, x_test of {tuple(test.x.shape[1:])}"
        )
    if classes == 0:
        if train.y.shape[1:] != test.y.shape[1:]:
            raise DataError(
                f"{name}: y_train has targets of shape {tuple(train.y.shape[1:])}, y_test of {tuple(test.y.shape[1:])}"
            )
        return Data(name, train, test, classes=0, prepare=prepare, augment=augment)
    largest = int(max(train.y.max(), test.y.max()))
    count = largest + 1 if classes is None else classes
    if largest >= count:
        raise DataError(f"{name}: a label is {largest}, but with {count} classes labels go from 0 to {count - 1}")
    return Data(name, train, test, classes=count, prepare=prepare, augment=augment)


def _split(part: str, x: Array, y: Array, numbers: bool) -> Split:
    examples, labels = _tensor(f"x_{part}", x), _tensor(f"y_{part}", y)
    if labels.dim() == 0 or examples.dim() == 0:
        raise DataError(f"x_{part} and y_{part} need one row per example")
    if len(examples) != len(labels):
        raise DataError(f"x_{part} has {len(examples)} examples, y_{part} {len(labels)} labels")
    if not labels.numel():
        raise DataError(f"x_{part} and y_{part} are empty")
    if labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels.squeeze(1)  # a column, as tables have it
    examples = examples.float() if examples.dtype == torch.float64 else examples
    return Split(examples, _numbers(part, labels) if numbers else _classes(part, labels))


def _numbers(part: str, targets: Tensor) -> Tensor:
    if targets.is_complex() or targets.dim() > 2:
        kind = str(targets.dtype) if targets.is_complex() else f"the shape {tuple(targets.shape)}"
        raise DataError(f"y_{part}: targets must be numbers, one or several per example, got {kind}")
    targets = targets.float()
    if not bool(targets.isfinite().all()):
        raise DataError(f"y_{part}: a target is not finite")
    return targets


def _classes(part: str, labels: Tensor) -> Tensor:
    if labels.is_floating_point() or labels.is_complex():
        raise DataError(f"y_{part}: labels must be integers, got {labels.dtype}; for numerical targets, pass classes=0")
    labels = labels.long()
    counted = labels if labels.dim() == 1 else labels[labels != IGNORED]
    if not counted.numel():
        raise DataError(f"y_{part}: every label is {IGNORED}, which marks ignored positions")
    if counted.min() < 0:
        raise DataError(f"y_{part}: a label is {int(counted.min())}; labels start at 0")
    return labels


def _tensor(name: str, values: Array) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.asarray(values)
        # torch shares memory, and cannot say that it may not be written to.
        return torch.from_numpy(np.require(array, requirements=["C", "W"]))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: must be an array of numbers: {error}") from None
