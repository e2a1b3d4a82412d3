"""A split into training and test part with the same share of every class."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedquilt.base.errors import DataError
from fedquilt.base.rng import generator
from fedquilt.base.text import counted
from fedquilt.base.types import Indices

TestFraction = Annotated[float, Field(gt=0, lt=1)]


def stratified(labels: npt.NDArray[np.integer[Any]], test_fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Return the positions of the training and the test examples, each in the data's order.

    Of a class with n examples, `test_fraction`·n, rounded, are in the test part. Numbers of clients may stand for labels.

    >>> train, test = stratified(np.array([0, 0, 0, 0, 1, 1, 1, 1]), test_fraction=0.25, seed=0)
    >>> len(train), len(test)
    (6, 2)
    """
    tested = np.zeros(len(labels), dtype=bool)
    order = np.argsort(labels, kind="stable")
    values, starts = np.unique(labels[order], return_index=True)
    for label, members in zip(values, np.split(order, starts[1:]), strict=True):
        count = round(test_fraction * len(members))
        tested[generator(seed, "test split", int(label)).permutation(members)[:count]] = True
    if tested.all() or not tested.any():
        part, change = ("training", "smaller") if tested.all() else ("test", "larger")
        raise DataError(
            f"test_fraction = {test_fraction} of {counted(len(labels), 'example')} leaves the {part} part empty; "
            f"use a {change} value, or more examples"
        )
    return np.flatnonzero(~tested), np.flatnonzero(tested)
