"""Robust wrappers in a federation: their limits, what they refuse, and what they withstand."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import fedquilt
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import SpecError
from fedquilt.base.records import describe
from fedquilt.methods.geometric_median import geometric_median
from fedquilt.methods.krum import krum
from fedquilt.methods.median import median
from fedquilt.methods.norm_bound import norm_bound
from fedquilt.methods.trimmed_mean import trimmed_mean
from fedquilt.simulate.simulation import Corruption

INF = float("inf")
WRAPPERS = [median, trimmed_mean, krum, geometric_median, norm_bound]


def train(blobs, partition, smooth, method, rounds=3, engine=None, **options):
    engine = engine or fedquilt.inline()
    return fedquilt.train(smooth, blobs, partition, method, rounds=rounds, engine=engine, **options)


def test_limits_leave_the_method_as_it_is():
    base = fedquilt.fed_avg()
    assert trimmed_mean(base, trim=0.0) is base
    assert norm_bound(base, limit=INF) is base


def test_a_bound_that_nobody_reaches_is_fed_avg_to_the_bit(blobs, unbalanced, smooth):
    base = fedquilt.fed_avg(fraction=0.5)
    high, low = (train(blobs, unbalanced, smooth, norm_bound(base, limit=limit)).digest for limit in (1e4, 1e-2))
    assert high == train(blobs, unbalanced, smooth, base).digest
    assert low != high


@pytest.mark.parametrize("wrapper", [median, trimmed_mean, krum, geometric_median])
def test_with_one_client_it_is_fed_avg(wrapper, blobs, unbalanced, smooth):
    pooled = unbalanced.pooled()
    base = fedquilt.fed_avg(fraction=1.0, batch=20)
    apart = train(blobs, pooled, smooth, wrapper(base)).state.vector - train(blobs, pooled, smooth, base).state.vector
    assert apart.abs().max() < 1e-6


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_workers_do_not_matter(wrapper, blobs, unbalanced, smooth):
    method = wrapper(fedquilt.fed_avg(fraction=1.0))
    first, second = (
        train(blobs, unbalanced, smooth, method, engine=engine).digest
        for engine in (fedquilt.inline(), fedquilt.processes(workers=2))
    )
    assert first == second


def reversed_and_long(delta, rng):
    return delta * -50


ROBUST = {
    "median": median,
    "trimmed mean": partial(trimmed_mean, trim=0.2),
    "krum": partial(krum, corrupt=2),
    "multi-krum": partial(krum, corrupt=2, selected=4),
    "geometric median": geometric_median,
    "norm bound": partial(norm_bound, limit=0.5),
}


@pytest.mark.parametrize("name", ROBUST)
def test_it_learns_where_two_of_ten_clients_send_the_opposite(name, blobs, smooth):
    """Each of them sends −50 times its update, which alone turns the mean around: (8 − 100) / 10 < 0."""
    partition = fedquilt.iid(blobs.train.y.numpy(), clients=10)
    base = fedquilt.fed_avg(fraction=1.0, lr=0.1, epochs=2, batch=6)
    attack = [fedquilt.Simulation("reversed", corruption=(Corruption(0.2, update=reversed_and_long),))]
    assert accuracy(train(blobs, partition, smooth, ROBUST[name](base), rounds=10, simulate=attack)) > 0.8
    assert accuracy(train(blobs, partition, smooth, base, rounds=3, simulate=attack)) < 0.6


def accuracy(result):
    return result.history.records[-1]["accuracy"]


def test_a_bound_goes_around_a_robust_reduction_and_not_within_it():
    base = fedquilt.fed_avg()
    outer = norm_bound(median(base), limit=1.0)
    assert "Bounded" in describe(outer.reduce)
    assert "coordinate_median" in describe(outer.reduce)
    with pytest.raises(SpecError, match="norm_bound and median both set `reduce`"):
        median(norm_bound(base, limit=1.0))
    with pytest.raises(SpecError, match="median and krum both set `reduce`"):
        krum(outer)


def test_two_robust_reductions_are_refused_by_name():
    with pytest.raises(SpecError, match="median and trimmed_mean both set `reduce`"):
        trimmed_mean(median(fedquilt.fed_avg()))


def test_two_of_a_kind_are_told_apart():
    base = fedquilt.fed_avg()
    reduces = [
        median(base),
        trimmed_mean(base, trim=0.1),
        trimmed_mean(base, trim=0.2),
        krum(base),
        krum(base, corrupt=1),
        krum(base, selected=2),
        geometric_median(base),
        geometric_median(base, iterations=3),
        geometric_median(base, tolerance=0.1),
        geometric_median(base, smoothing=0.1),
        norm_bound(base, limit=1.0),
        norm_bound(base, limit=2.0),
        norm_bound(median(base), limit=1.0),
    ]
    assert len({describe(method.reduce) for method in reduces}) == len(reduces)


@pytest.mark.parametrize(
    ("wrapper", "arguments", "words"),
    [
        (trimmed_mean, {"trim": 0.5}, "trim: must be less than 0.5"),
        (trimmed_mean, {"trim": -0.1}, "trim: must be at least 0"),
        (krum, {"corrupt": -1}, "corrupt: must be at least 0"),
        (krum, {"corrupt": 0.5}, "corrupt: must be a whole number"),
        (krum, {"selected": 0}, "selected: must be at least 1"),
        (geometric_median, {"iterations": 0}, "iterations: must be at least 1"),
        (geometric_median, {"smoothing": 0.0}, "smoothing: must be greater than 0"),
        (norm_bound, {"limit": 0.0}, "limit: must be greater than 0"),
        (norm_bound, {"limit": float("nan")}, "limit: must be greater than 0"),
    ],
)
def test_wrong_values_are_refused(wrapper, arguments, words):
    with pytest.raises(ArgumentError, match=words):
        wrapper(fedquilt.fed_avg(), **arguments)


def test_a_cohort_too_small_for_krum_is_warned_of_and_the_round_not_applied(blobs, unbalanced, smooth):
    method = krum(fedquilt.fed_avg(fraction=0.5), corrupt=2)
    with pytest.warns(RuntimeWarning, match="3 clients reported, of whom corrupt = 2"):
        result = train(blobs, unbalanced, smooth, method)
    assert not any(record["applied"] for record in result.history)


def test_no_round_goes_further_than_the_bound(blobs, unbalanced, smooth):
    method = norm_bound(fedquilt.fed_avg(fraction=1.0), limit=0.01)
    one, two = (train(blobs, unbalanced, smooth, method, rounds=n).state.vector for n in (1, 2))
    assert torch.linalg.vector_norm(two - one) < 0.01 + 1e-6
