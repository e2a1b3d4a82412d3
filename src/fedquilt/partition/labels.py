"""The class of every training example, as partitioners take it."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import PlainValidator
from pydantic_core import PydanticCustomError
from torch import Tensor

from fedquilt.base.errors import SpecError


def _labels(value: object) -> npt.NDArray[np.integer[Any]]:
    if isinstance(value, Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.ndim >= 1 and value.dtype.kind in "iuf":
        return value
    raise PydanticCustomError("plain", "must be a NumPy array of numbers, with one row per example")


Labels = Annotated[npt.NDArray[np.integer[Any]], PlainValidator(_labels)]
"""One row per example: its class, the targets of a sequence, or numbers. The array is passed on as it is, never copied."""


def require_classes(labels: npt.NDArray[np.integer[Any]]) -> None:
    """Raise a SpecError if examples have no single class, or there are none.

    >>> require_classes(np.zeros((3, 80), dtype=np.int64))
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: needs one class per example, but the labels of this data set have the shape (3, 80)
    """
    if not np.issubdtype(labels.dtype, np.integer):
        raise SpecError("needs one class per example, but this data set has numerical targets")
    if labels.ndim != 1:
        raise SpecError(f"needs one class per example, but the labels of this data set have the shape {labels.shape}")
    if not len(labels):
        raise SpecError("needs one class per example, but there are no examples")


def require_one_each(labels: npt.NDArray[np.integer[Any]], clients: int) -> None:
    """Raise a SpecError if there are fewer examples than clients.

    >>> require_one_each(np.zeros(3, dtype=np.int64), clients=4)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: clients: 4 clients cannot each hold an example of 3; at most 3 clients
    """
    if clients > len(labels):
        raise SpecError(
            f"clients: {clients} clients cannot each hold an example of {len(labels)}; at most {len(labels)} clients"
        )
