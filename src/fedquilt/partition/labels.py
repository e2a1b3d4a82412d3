"""The class of every training example, as partitioners take it."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from fedquilt.errors import SpecError


def _labels(value: object) -> npt.NDArray[np.integer[Any]]:
    if isinstance(value, np.ndarray) and value.ndim == 1 and np.issubdtype(value.dtype, np.integer):
        return value
    raise PydanticCustomError("plain", "must be a NumPy array of whole numbers with one dimension")


Labels = Annotated[npt.NDArray[np.integer[Any]], PlainValidator(_labels)]
"""One whole number an example. The array is passed on as it is, never copied."""


def require_one_each(labels: npt.NDArray[np.integer[Any]], clients: int) -> None:
    """Raise a SpecError if there are fewer examples than clients.

    >>> require_one_each(np.zeros(3, dtype=np.int64), clients=4)
    Traceback (most recent call last):
    fedquilt.errors.SpecError: clients: 4 clients cannot each hold an example of 3; at most 3 clients
    """
    if clients > len(labels):
        raise SpecError(
            f"clients: {clients} clients cannot each hold an example of {len(labels)}; at most {len(labels)} clients"
        )
