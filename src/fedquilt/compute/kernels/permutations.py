"""Permutations that belong to keys, many at once by `permutations.cpp`, or one by one by NumPy: the same, but slower."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import numpy as np

from fedquilt.base.rng import brief_generator
from fedquilt.base.types import Indices
from fedquilt.compute.kernels.build import installed_library, sizes

KERNEL = "permutations"

LONGEST = 128 - 2 * 20
"""Characters of a key's text that leave room for two numbers in a block of the hash."""


def permutations(
    seed: int,
    purpose: str,
    round_: int,
    clients: Sequence[int],
    slots: Sequence[int],
    lengths: Sequence[int],
    draws: Sequence[int],
) -> Indices:
    """Return what `generator(seed, purpose, round_, client, slot)` draws: permutations of a length for each, in a row.

    Clients and slots are not negative.

    >>> permutations(1, "sample", 7, [3, 4], [0, 1], [4, 2], [1, 2]).tolist()
    [2, 0, 1, 3, 0, 1, 1, 0]
    """
    kernel = installed_library(KERNEL) if _agrees() else None
    text = f"{seed}/{purpose}/{round_}".encode()
    if kernel is None or len(text) > LONGEST or max(lengths) >= 2**32:
        return _by_numpy(seed, purpose, round_, clients, slots, lengths, draws)
    return _by_kernel(kernel, text, clients, slots, lengths, draws)


def _by_kernel(kernel: ctypes.CDLL, text: bytes, *about: Sequence[int]) -> Indices:
    columns = [np.asarray(each, dtype=np.int64) for each in about]
    out = np.empty(int((columns[2] * columns[3]).sum()), dtype=np.int64)
    given = [ctypes.c_void_p(column.ctypes.data) for column in columns]
    kernel.draw_permutations(
        ctypes.c_char_p(text), *sizes(len(text)), *given, *sizes(len(columns[0])), ctypes.c_void_p(out.ctypes.data)
    )
    return out


def _by_numpy(seed: int, purpose: str, round_: int, *about: Sequence[int]) -> Indices:
    drawn = []
    for client, slot, length, count in zip(*about, strict=True):
        rng = brief_generator(seed, purpose, round_, client, slot)
        drawn += [rng.permutation(length) for _ in range(count)]
    return np.concatenate(drawn) if drawn else np.empty(0, dtype=np.int64)


@functools.cache
def _agrees() -> bool:
    """Say whether there is a kernel, and it draws what this version of NumPy draws."""
    kernel = installed_library(KERNEL)
    asked = ([0, 12, 10**18], [0, 345, 7], [50, 1, 1000], [2, 1, 1])
    return kernel is not None and np.array_equal(
        _by_kernel(kernel, b"1/sample/2", *asked), _by_numpy(1, "sample", 2, *asked)
    )
