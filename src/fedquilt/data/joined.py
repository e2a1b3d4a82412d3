"""Several owners' data as one data set, as a simulation has them: every example keeps the number of its owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedquilt.base.errors import DataError
from fedquilt.data.data import Data, Split

SERVER = -1
"""The owner of the examples that are the server's own."""


def joined(server: Data, sites: Sequence[tuple[str, Data]]) -> Data:
    """Put the training examples of sites, and those of the server's own, into one data set; tests are the server's.

    >>> def data(rows: int) -> Data:
    ...     split = Split(torch.zeros(rows, 2), torch.zeros(rows, dtype=torch.int64))
    ...     return Data("mine", split, split, classes=2)
    >>> joined(data(1), [("bern", data(2)), ("oslo", data(3))]).train.ids.tolist()
    [-1, 0, 0, 1, 1, 1]
    """
    parts = [("server", server), *sites]
    for name, data in parts:
        if data.classes != server.classes:
            raise DataError(f"{name}: has data of {data.classes} classes; the server's have {server.classes}")
        if data.train.x.shape[1:] != server.test.x.shape[1:] or data.train.x.dtype != server.test.x.dtype:
            shapes = [f"{tuple(x.shape[1:])} in {x.dtype}" for x in (data.train.x, server.test.x)]
            raise DataError(
                f"{name}: has examples of shape {shapes[0]}; those of the server's test set are {shapes[1]}"
            )
    owners = [np.full(len(data.train), number + SERVER, dtype=np.int64) for number, (_, data) in enumerate(parts)]
    train = Split(
        torch.cat([data.train.x for _, data in parts]),
        torch.cat([data.train.y for _, data in parts]),
        np.concatenate(owners),
    )
    return replace(server, train=train, test=replace(server.test, ids=None))
