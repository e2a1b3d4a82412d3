"""Names of classes and clients as numbers from 0, and the split into training and test part by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedquilt.base.errors import DataError
from fedquilt.base.rng import generator
from fedquilt.base.text import counted
from fedquilt.base.types import Indices

TestFraction = Annotated[float, Field(gt=0, lt=1)]

_DIGITS = 4_000
"""Digits that Python turns into a number without complaint."""


def numbered(values: Sequence[Any], first: Iterable[Any] = ()) -> tuple[Indices, list[Any]]:
    """Number the distinct values, in order: texts as numbers where all are whole, else by the alphabet.

    `first` are values that have their numbers already, from 0.

    >>> numbers, names = numbered(["10", "9", "10"])
    >>> numbers.tolist(), names
    ([1, 0, 1], ['9', '10'])
    >>> numbered(["8", "10"], first=names)[0].tolist()
    [2, 1]
    """
    known = list(first)
    distinct = set(values).difference(known)
    whole = all(isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS for value in distinct)
    names = [*known, *sorted(distinct, key=(lambda value: (int(value), value)) if whole else None)]
    number_of = {name: number for number, name in enumerate(names)}
    return np.array([number_of[value] for value in values], dtype=np.int64), names


def number_clients(train: Sequence[Any], test: Sequence[Any]) -> tuple[Indices, Indices]:
    """Number clients in their order, the same ones alike in both parts, those that have something to train on first.

    >>> number_clients(["mia", "ben", "mia"], ["ada", "mia"])
    (array([1, 0, 1]), array([2, 1]))
    """
    here, names = numbered(train)
    return here, numbered(test, first=names)[0]


def first_of_each(labels: npt.NDArray[np.integer[Any]], count: int) -> Indices:
    """Return the positions of the first `count` examples of every class, in the data's order.

    >>> first_of_each(np.array([1, 0, 1, 1, 0]), 2).tolist()
    [0, 1, 2, 4]
    """
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    number = np.arange(len(labels)) - np.repeat(starts, sizes)
    return np.sort(order[number < count])


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
