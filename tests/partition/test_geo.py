"""Clients by S2 cells."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedquilt.base.errors import MissingExtraError, SpecError
from fedquilt.data.cells import DEEPEST, NOWHERE, adaptive_cells, cells_at, smallest_cells
from fedquilt.data.data import Data, Split
from fedquilt.partition import geo

Coordinates = npt.NDArray[np.float64]

# From Google's own library, the PyPI package s2geometry 0.14.0:
# S2CellId(S2LatLng.FromDegrees(latitude, longitude)), its id() and parent(level).ToToken().
KNOWN = [
    ((48.2082, 16.3738), 5146778328910081981, {0: "5", 3: "474", 10: "476d07"}),
    ((-33.8688, 151.2093), 7715420701375135829, {0: "7", 3: "6b4", 10: "6b12af"}),
    ((37.7749, -122.4194), 9260949627242122337, {0: "9", 3: "80c", 10: "808581"}),
    ((-33.9249, 18.4241), 2147204797824605211, {0: "1", 3: "1dc", 10: "1dcc67"}),
    ((90.0, 0.0), 5764607523034234881, {0: "5", 3: "504", 10: "500001"}),
    ((-90.0, 0.0), 12682136550675316737, {0: "b", 3: "b04", 10: "b00001"}),
    ((0.0, 0.0), 1152921504606846977, {0: "1", 3: "104", 10: "100001"}),
    ((0.0, 180.0), 8070450532247928831, {0: "7", 3: "6fc", 10: "6fffff"}),
    ((0.0, -180.0), 8070450532247928833, {0: "7", 3: "704", 10: "700001"}),
]


def data_at(coordinates: Coordinates | None) -> Data:
    count = 3 if coordinates is None else len(coordinates)
    split = Split(torch.arange(count), torch.zeros(count, dtype=torch.int64), coordinates=coordinates)
    return Data("somewhere", split, split, classes=1)


def token(cell: np.uint64) -> str:
    return f"{int(cell):016x}".rstrip("0")


@pytest.mark.parametrize(("place", "number", "tokens"), KNOWN, ids=[str(place) for place, *_ in KNOWN])
def test_cells_are_those_of_the_reference(place: tuple[float, float], number: int, tokens: dict[int, str]) -> None:
    (cell,) = smallest_cells(np.array([place]))
    assert int(cell) == number
    assert {level: token(cells_at(np.array([cell]), level)[0]) for level in tokens} == tokens


@st.composite
def clouds(draw: st.DrawFn) -> Coordinates:
    """Places in a few clusters of very different widths, some of them twice, some not known."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centres = [
        draw(st.tuples(st.floats(-90, 90), st.floats(-180, 180), st.sampled_from([0.0, 1e-6, 0.01, 2.0, 60.0])))
        for _ in range(draw(st.integers(1, 4)))
    ]
    parts = [[lat, lon] + width * rng.normal(size=(draw(st.integers(1, 40)), 2)) for lat, lon, width in centres]
    coordinates = np.concatenate(parts)
    coordinates = np.stack([coordinates[:, 0].clip(-90, 90), (coordinates[:, 1] + 180) % 360 - 180], axis=1)
    coordinates[rng.random(len(coordinates)) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    return coordinates


def slow_cells(coordinates: Coordinates, most: int, deepest: int) -> dict[int, list[int]]:
    """The paper's words: divide every cell with more than N_max examples into its four, face by face."""
    smallest = [int(cell) for cell in smallest_cells(coordinates)]
    found: dict[int, list[int]] = {}

    def divide(rows: list[int], level: int) -> None:
        inside: dict[int, list[int]] = {}
        for row in rows:
            size = 1 << (2 * (DEEPEST - level))
            inside.setdefault((smallest[row] & -size) | size, []).append(row)
        for cell, members in inside.items():
            if len(members) > most and level < deepest:
                divide(members, level + 1)
            else:
                found[cell] = members

    divide([row for row, cell in enumerate(smallest) if cell], 0)
    return found


def level_of(cell: int) -> int:
    return DEEPEST - ((cell & -cell).bit_length() - 1) // 2


@settings(max_examples=150, deadline=None)
@given(
    coordinates=clouds(),
    most=st.integers(1, 40),
    share=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    deepest=st.integers(0, 30),
)
def test_what_cells_promise(coordinates: Coordinates, most: int, share: float, deepest: int) -> None:
    expected = slow_cells(coordinates, most, deepest)
    cells = adaptive_cells(coordinates, most, deepest)
    assert {int(c): np.flatnonzero(cells == c).tolist() for c in np.unique(cells) if c != NOWHERE} == expected
    kept = {cell: rows for cell, rows in expected.items() if len(rows) >= share * most}
    if not kept:
        with pytest.raises(SpecError, match="least_share: no cell has"):
            geo(data_at(coordinates), most, share, deepest)
        return
    held = geo(data_at(coordinates), most, share, deepest)
    assert [held.client(k).tolist() for k in range(len(held))] == [kept[cell] for cell in sorted(kept)]
    assert len(np.unique(held.indices)) == len(held.indices), "an example is in one cell at most"
    assert not np.isnan(coordinates[held.indices]).any()
    assert held.sizes.min() >= share * most
    for cell, rows in kept.items():
        assert len(rows) <= most or level_of(cell) == deepest
    numbers = sorted(kept)
    for before, after in itertools.pairwise(numbers):  # a cell's own range along the curve ends before the next
        assert before + (before & -before) <= after - (after & -after) + 1


@settings(max_examples=60, deadline=None)
@given(coordinates=clouds(), most=st.integers(1, 20), cut=st.integers(1, 30))
def test_own_tests_lie_in_the_cells_of_their_clients(coordinates: Coordinates, most: int, cut: int) -> None:
    coordinates = np.concatenate([coordinates, coordinates[::2] + 0.001]).clip([-90, -180], [90, 180])
    train, test = coordinates[: -min(cut, len(coordinates) - 1)], coordinates[-min(cut, len(coordinates) - 1) :]
    cells = adaptive_cells(train, most)
    assume(any(np.count_nonzero(cells == cell) >= 0.2 * most for cell in set(cells.tolist()) - {0}))
    data = replace(data_at(train), test=data_at(test).test)
    held = geo(data, most, 0.2, own_test=True)
    assert held.test is not None
    assert len(held.test) == len(held)
    for k in range(len(held)):
        (cell,) = set(cells[held.client(k)].tolist())
        own = cells_at(smallest_cells(test), level_of(cell)) == cell
        assert held.test.client(k).tolist() == np.flatnonzero(own & ~np.isnan(test).any(axis=1)).tolist()
    assert np.array_equal(held.indices, geo(data, most, 0.2).indices)


def test_own_tests_without_places_are_dealt_out_by_class() -> None:
    rng = np.random.default_rng(0)
    coordinates, labels = rng.uniform(-60, 60, (400, 2)), torch.from_numpy(rng.integers(0, 4, 400))
    train, test = (
        Split(torch.arange(400), labels, coordinates=coordinates),
        Split(torch.arange(100), torch.arange(100) % 4),
    )
    data = Data("somewhere", train, test, classes=4)
    held, other = (geo(data, most=60, own_test=True, seed=seed) for seed in (0, 1))
    assert held.test is not None
    assert other.test is not None
    assert sorted(held.test.indices.tolist()) == list(range(100))
    assert np.abs(held.test.sizes - held.sizes / 4).max() <= 2
    assert not np.array_equal(held.test.indices, other.test.indices)
    assert geo(data, most=60).test is None
    numbers = replace(data, train=replace(train, y=labels.float()), test=replace(test, y=test.y.float()), classes=0)
    assert np.abs(geo(numbers, most=60, own_test=True).test.sizes - held.sizes / 4).max() <= 1  # type: ignore[union-attr]


def test_a_smaller_number_makes_more_cells() -> None:
    rng = np.random.default_rng(0)
    coordinates = np.stack([rng.normal(45, 8, 5000).clip(-90, 90), rng.normal(10, 20, 5000)], axis=1)
    counts = [len(geo(data_at(coordinates), most)) for most in (3000, 300, 100, 10)]
    assert counts == sorted(counts)
    assert counts[0] < 10
    assert counts[-1] > 500


def test_without_places() -> None:
    with pytest.raises(SpecError, match="the data set somewhere has none"):
        geo(data_at(None), most=10)
    with pytest.raises(SpecError, match="no cell has"):
        geo(data_at(np.full((3, 2), np.nan)), most=10)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s2cell", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedquilt\[geo\]'"):
        geo(data_at(np.zeros((3, 2))), most=10)
