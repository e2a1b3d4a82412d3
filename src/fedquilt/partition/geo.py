"""Clients by where their examples come from: cells of the S2 grid.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution", section 4.1: "every S2 cell is
recursively subdivided into four finer-level cells until no single cell contains more than N_max examples. Cells ending up
with less than N_min examples are discarded", with N_min = 0.01·N_max. The first cells are the six faces of the cube.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedquilt.base.arguments import Count, Fraction, Seed
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import partitions
from fedquilt.data.cells import DEEPEST, adaptive_cells, cell_around, numbered_cells
from fedquilt.data.data import Data
from fedquilt.partition.dealing import with_client_tests
from fedquilt.partition.partition import Partition

Level = Annotated[int, Field(ge=0, le=DEEPEST)]


@partitions.register
def geo(
    data: Data,
    most: Count,
    least_share: Fraction = 0.01,
    deepest: Level = DEEPEST,
    seed: Seed = 0,
    own_test: bool = False,
) -> Partition:
    """Make a client of every S2 cell, dividing those with more than `most` examples (Hsu 2020).

    Cells that end up with less than `least_share`·`most` examples are left out, and so are examples whose location is not
    known. Cells of the level `deepest` are not divided further, however many examples they have. Clients are in the
    order of their cells along S2's curve: neighbours are near each other.

    With `own_test`, clients are tested on the test examples of their cells. If the data set lacks the locations of
    test examples, these are dealt out by class as in other partitions, and `seed` decides who gets which.

    >>> import torch
    >>> from fedquilt.data.data import Split
    >>> coordinates = np.array([[48.2, 16.4], [48.3, 16.4], [48.2, 16.4], [-33.9, 151.2]])
    >>> split = Split(torch.arange(4), torch.zeros(4, dtype=torch.int64), coordinates=coordinates)
    >>> held = geo(Data("four", split, split, classes=1), most=2)
    >>> [held.client(k).tolist() for k in range(len(held))]
    [[1], [0, 2], [3]]
    """
    if data.train.coordinates is None:
        raise SpecError(f"needs coordinates, but the data set {data.name} has none")
    least = least_share * most
    cells = adaptive_cells(data.train.coordinates, most, deepest)
    owner = numbered_cells(cells, least)
    kept = np.unique(cells[owner >= 0])
    if not len(kept):
        raise SpecError(f"least_share: no cell has {least_share:g} × {most} examples; use a smaller least_share")
    held = _by_owner(owner, len(kept))
    if own_test and data.test.coordinates is not None:
        return replace(held, test=_by_owner(cell_around(data.test.coordinates, kept), len(kept)))
    by_class = data.classes > 0 and data.train.y.dim() == 1
    return with_client_tests(held, data.train.y.numpy(), data, seed, by_class) if own_test else held


def _by_owner(owner: npt.NDArray[np.int64], clients: int) -> Partition:
    """Give rows to the clients of these numbers; those of −1 have no owner."""
    rows = np.flatnonzero(owner >= 0)
    return Partition.by_sizes(rows[np.argsort(owner[rows], kind="stable")], np.bincount(owner[rows], minlength=clients))
