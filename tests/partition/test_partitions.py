"""What every partitioner promises, over random labels and numbers of clients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import partitions
from fedquilt.partition import (
    Partition,
    class_blocks,
    dirichlet,
    dirichlet_per_class,
    feature_skew,
    iid,
    power_law,
    quantity_skew,
    shards,
    stratified,
)

Labels = npt.NDArray[np.int64]

COVERING: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "shards of 1": lambda labels, clients, seed: shards(labels, clients, shards=1, seed=seed),
    "dirichlet 0": lambda labels, clients, seed: dirichlet(labels, clients, alpha=0.0, seed=seed),
    "dirichlet 1e-320": lambda labels, clients, seed: dirichlet(labels, clients, alpha=1e-320, seed=seed),
    "dirichlet 1e-9": lambda labels, clients, seed: dirichlet(labels, clients, alpha=1e-9, seed=seed),
    "dirichlet 0.3": lambda labels, clients, seed: dirichlet(labels, clients, alpha=0.3, seed=seed),
    "dirichlet 1e9": lambda labels, clients, seed: dirichlet(labels, clients, alpha=1e9, seed=seed),
    "dirichlet inf": lambda labels, clients, seed: dirichlet(labels, clients, alpha=np.inf, seed=seed),
    "stratified": stratified,
    "feature_skew": feature_skew,
    "power_law of 0": lambda labels, clients, seed: power_law(labels, clients, exponent=0.0, seed=seed),
    "dirichlet empirical": lambda labels, clients, seed: dirichlet(
        labels, clients, alpha=0.3, prior="empirical", seed=seed
    ),
}


@st.composite
def populations(draw: st.DrawFn) -> tuple[Labels, int]:
    classes = draw(st.integers(1, 6))
    # Small numbers of a class and gaps between the classes are the hard cases.
    counts = draw(st.lists(st.integers(0, 30), min_size=classes, max_size=classes).filter(any))
    labels = np.repeat(np.arange(classes) * draw(st.integers(1, 3)), counts)
    labels = np.random.default_rng(draw(st.integers(0, 9))).permutation(labels)
    return labels, draw(st.integers(1, len(labels)))


@pytest.mark.parametrize("name", COVERING)
@settings(max_examples=60, deadline=None)
@given(population=populations(), seed=st.integers(0, 2**63 - 1))
def test_every_example_has_one_owner_and_sizes_are_even(name: str, population: tuple[Labels, int], seed: int) -> None:
    labels, clients = population
    untouched = labels.copy()
    held = COVERING[name](labels, clients, seed=seed)
    assert len(held) == clients
    assert np.array_equal(np.sort(held.indices), np.arange(len(labels)))
    assert held.client(0).dtype == held.offsets.dtype == np.int64
    assert held.sizes.max() - held.sizes.min() <= 1
    assert np.array_equal(labels, untouched)


@pytest.mark.parametrize("name", COVERING)
def test_the_seed_decides(name: str) -> None:
    labels = np.repeat(np.arange(10), 30)
    first, same, other = (COVERING[name](labels, 20, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.indices, same.indices)
    assert not np.array_equal(first.indices, other.indices)


def test_every_partitioner_is_covered_here() -> None:
    here = {name.split()[0] for name in [*COVERING, *UNEVEN]} | {"geo", "natural", "stored"}  # these have their own
    assert set(partitions) == here


UNEVEN: dict[str, Callable[..., Partition]] = {
    "class_blocks": lambda labels, clients, seed: class_blocks(labels, clients, classes=6, seed=seed),
    "dirichlet_per_class": lambda labels, clients, seed: dirichlet_per_class(labels, clients, 0.5, least=0, seed=seed),
    "dirichlet_per_class 1e-320": lambda labels, clients, seed: dirichlet_per_class(
        labels, clients, 1e-320, least=0, seed=seed
    ),
    "dirichlet_per_class 1e9": lambda labels, clients, seed: dirichlet_per_class(
        labels, clients, 1e9, least=0, seed=seed
    ),
    "power_law": power_law,
    "power_law of 9": lambda labels, clients, seed: power_law(labels, clients, exponent=9.0, seed=seed),
    "quantity_skew": quantity_skew,
    "quantity_skew 1e-320": lambda labels, clients, seed: quantity_skew(labels, clients, beta=1e-320, seed=seed),
}
NOBODY_EMPTY = [name for name in UNEVEN if not name.startswith("dirichlet_per_class")]


@pytest.mark.parametrize("name", UNEVEN)
@settings(max_examples=60, deadline=None)
@given(population=populations(), seed=st.integers(0, 2**63 - 1))
def test_every_example_has_one_owner(name: str, population: tuple[Labels, int], seed: int) -> None:
    labels, clients = population
    held = UNEVEN[name](labels, clients, seed=seed)
    assert len(held) == clients
    assert np.array_equal(np.sort(held.indices), np.arange(len(labels)))
    assert held.client(0).dtype == held.offsets.dtype == np.int64
    assert name not in NOBODY_EMPTY or held.sizes.min() >= 1


@pytest.mark.parametrize("name", UNEVEN)
def test_the_seed_decides_of_uneven_ones_too(name: str) -> None:
    labels = np.repeat(np.arange(10), 30)
    first, same, other = (UNEVEN[name](labels, 20, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.indices, same.indices)
    assert np.array_equal(first.offsets, same.offsets)
    assert not np.array_equal(first.indices, other.indices)


@pytest.mark.parametrize("name", COVERING)
def test_more_clients_than_examples(name: str) -> None:
    with pytest.raises(SpecError, match="at most 3"):
        COVERING[name](np.array([0, 1, 2]), 4, seed=0)


@pytest.mark.parametrize("labels", [[0, 1], np.array(["0", "1"]), np.array([True, False]), np.array(3)])
def test_labels_are_a_row_of_numbers(labels: Any) -> None:
    with pytest.raises(ArgumentError, match="labels: must be a NumPy array of numbers, with one row per example"):
        iid(labels, clients=1)


@pytest.mark.parametrize("name", COVERING)
def test_targets_that_are_no_classes(name: str) -> None:
    """What looks at classes refuses them; what does not, does not."""
    targets = np.linspace(0.0, 1.0, 12)
    if name in ("iid", "feature_skew", "power_law of 0"):
        assert np.array_equal(np.sort(COVERING[name](targets, 3, seed=0).indices), np.arange(12))
    else:
        with pytest.raises(SpecError, match="this data set has numerical targets"):
            COVERING[name](targets, 3, seed=0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_any_whole_number_type(dtype: type[np.integer[Any]]) -> None:
    labels = np.repeat(np.arange(3), 4).astype(dtype)
    for held in (iid(labels, clients=2), shards(labels, clients=2), dirichlet(labels, clients=2, alpha=1.0)):
        assert np.array_equal(np.sort(held.indices), np.arange(12))


def test_negative_labels_are_classes_too() -> None:
    labels = np.array([-1, -1, 1, 1])
    assert np.array_equal(np.sort(dirichlet(labels, clients=2, alpha=0.5).indices), np.arange(4))


def test_a_million_clients_are_two_arrays() -> None:
    held = iid(np.zeros(1_000_000, dtype=np.uint8), clients=1_000_000)
    assert len(held) == 1_000_000
    assert held.indices.nbytes + held.offsets.nbytes < 17_000_000
