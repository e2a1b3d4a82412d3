"""Cells of the S2 grid, as small as the data in them asks for.

S2 projects the sphere onto the six faces of a cube and divides each of them into four, thirty times over; the number of a
cell begins with that of the cell around it (http://s2geometry.io). Weyand, Kostrikov and Philbin 2016, "PlaNet – Photo
Geolocation with Convolutional Neural Networks", section 3: a cell that holds too many photos is divided into its four.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import optional

CellIds = npt.NDArray[np.uint64]

DEEPEST = 30
"""The level of the smallest cells, about a square centimetre."""

NOWHERE = np.uint64(0)
"""Stands for the cell of an example whose location is not known."""


def smallest_cells(coordinates: npt.NDArray[np.float64]) -> CellIds:
    """Return the smallest cells that hold some locations, given in degrees of latitude and longitude.

    >>> [hex(cell) for cell in smallest_cells(np.array([[48.2082, 16.3738], [np.nan, 0.0]])).tolist()]
    ['0x476d079f105d2fbd', '0x0']
    """
    s2cell = optional("s2cell", "finding S2 cells", "geo")
    known = np.isfinite(coordinates).all(axis=1)
    found = np.full(len(coordinates), NOWHERE)
    found[known] = [s2cell.lat_lon_to_cell_id(*pair, DEEPEST) for pair in coordinates[known].tolist()]
    return found


def cells_at(cells: CellIds, level: int) -> CellIds:
    """Return the cells of a level that hold the given smaller ones.

    >>> hex(cells_at(np.array([0x476D079F105D2FBD], dtype=np.uint64), 3)[0])
    '0x4740000000000000'
    """
    # A number has the face, two bits a level, and then a single 1.
    last = np.uint64(1) << np.uint64(2 * (DEEPEST - level))
    return (cells & ~(last - np.uint64(1) | last)) | last


def adaptive_cells(coordinates: npt.NDArray[np.float64], most: int, deepest: int = DEEPEST) -> CellIds:
    """Return the cell of all coordinates: the largest one that has no more than `most` of them, or else a deepest one.

    >>> coordinates = np.array([[48.2, 16.4], [48.2, 16.4], [48.3, 16.4], [-33.9, 151.2]])
    >>> [hex(cell) for cell in adaptive_cells(coordinates, most=2).tolist()]
    ['0x476d070000000000', '0x476d070000000000', '0x476d050000000000', '0x7000000000000000']
    """
    smallest = smallest_cells(coordinates)
    found = np.full(len(smallest), NOWHERE)
    crowded = np.flatnonzero(smallest != NOWHERE)
    for level in range(deepest + 1):
        cells, inverse, counts = np.unique(cells_at(smallest[crowded], level), return_inverse=True, return_counts=True)
        found[crowded] = cells[inverse]
        crowded = crowded[counts[inverse] > most]
    return found


def cell_around(coordinates: npt.NDArray[np.float64], cells: CellIds) -> npt.NDArray[np.int64]:
    """Return which of some sorted cells, none of which holds another, each location lies in; −1 for none of them.

    >>> cells = np.array([0x476D050000000000, 0x7000000000000000], dtype=np.uint64)
    >>> cell_around(np.array([[48.3, 16.4], [-33.9, 151.2], [0.0, 0.0], [np.nan, 0.0]]), cells).tolist()
    [0, 1, -1, -1]
    """
    smallest = smallest_cells(coordinates)
    found = np.full(len(coordinates), -1, dtype=np.int64)
    for level in range(DEEPEST + 1):
        around = cells_at(smallest, level)
        number = np.searchsorted(cells, around).clip(max=len(cells) - 1)
        found = np.where((smallest != NOWHERE) & (cells[number] == around), number, found)
    return found


def numbered_cells(cells: CellIds, least: float) -> npt.NDArray[np.int64]:
    """Number the cells that have at least so many examples, in S2's order; −1 is the number of all others.

    >>> numbered_cells(np.array([9, 9, 0, 5, 7, 7], dtype=np.uint64), least=2).tolist()
    [1, 1, -1, -1, 0, 0]
    """
    kinds, inverse, counts = np.unique(cells, return_inverse=True, return_counts=True)
    kept = (kinds != NOWHERE) & (counts >= least)
    return np.where(kept, np.cumsum(kept) - 1, -1)[inverse]
