"""Names as numbers from 0: of classes, and of clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedquilt.base.types import Indices

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
