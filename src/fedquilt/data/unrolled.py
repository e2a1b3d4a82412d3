"""Sequences of symbols as rows of one length: at every position an input symbol, and the one that comes next as target.

A recurrent network is unrolled over a fixed number of positions (80 characters, 10 words in McMahan 2017). A shorter
sequence is padded, and its padding does not count; a longer one is cut into several rows, and the network begins each anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.base.memory import require_memory
from fedquilt.base.types import Indices
from fedquilt.data.data import IGNORED

BLOCK = 2**16
"""Sequences placed at a time: a bound on memory."""

AT_ONCE = 250
"""Rows that a model is tested on at a time: with 10,000 words, the scores of one have 400 kB."""


def unrolled(
    symbols: npt.NDArray[np.integer[Any]],
    sizes: Indices,
    length: int,
    vocabulary: int,
    begin: int,
    end: int | None = None,
    firsts: Indices | None = None,
) -> tuple[Tensor, Tensor, Indices]:
    """Return inputs and targets, (rows, length), and the number of the sequence that each row belongs to.

    `sizes` says how long each sequence is, `firsts` where in `symbols` it begins; unless given, they stand one after the
    other. Every sequence is preceded by the symbol `begin`, which is never a target, and where there is an `end`, the
    network has to predict that too. Symbols are kept in as few bytes as `vocabulary` of them need.

    >>> x, y, of = unrolled(np.array([5, 6, 7, 8]), np.array([3, 1]), length=2, vocabulary=10, begin=0, end=1)
    >>> x.tolist(), y.tolist(), of.tolist()
    ([[0, 5], [6, 7], [0, 8]], [[5, 6], [7, 1], [8, 1]], [0, 0, 1])
    """
    firsts = _before(sizes) if firsts is None else firsts
    rows = -(-(sizes + (end is not None)) // length)
    starts = _before(rows) * length
    dtype = np.int16 if vocabulary <= 2**15 else np.int32
    total = int(rows.sum())
    require_memory(f"{total:,} examples of {length:,} positions", 2 * total * length * np.dtype(dtype).itemsize)
    x = np.full(total * length, begin, dtype=dtype)
    y = np.full(len(x), IGNORED, dtype=dtype)
    for block in range(0, len(sizes), BLOCK):
        some = slice(block, block + BLOCK)
        lengths, count = sizes[some], np.arange(int(sizes[some].sum()))
        values = symbols[count + np.repeat(firsts[some] - _before(lengths), lengths)]
        positions = count + np.repeat(starts[some] - _before(lengths), lengths)
        y[positions] = values
        followed = np.ones(len(count), dtype=bool)
        if end is None:
            followed[np.cumsum(lengths)[lengths > 0] - 1] = False  # nothing is predicted after the last one
        x[positions[followed] + 1] = values[followed]
    if end is not None:
        y[starts + sizes] = end
    return _rows(x, length), _rows(y, length), np.repeat(np.arange(len(sizes)), rows)


def to_indices(raw: Tensor) -> Tensor:
    """Turn symbols kept in few bytes into what an embedding takes."""
    return raw.long()


def _before(counts: Indices) -> Indices:
    """Return how many there are before each."""
    return np.cumsum(counts) - counts


def _rows(flat: npt.NDArray[Any], length: int) -> Tensor:
    return torch.from_numpy(flat.reshape(-1, length))
