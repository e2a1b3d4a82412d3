"""Dropping out, being slow, being there: exact small cases, and frequencies within stated bounds."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from fedquilt.algorithm.parts.selection import AskMore, BySize, Uniform
from fedquilt.base.errors import FedquiltError
from fedquilt.partition import Partition
from fedquilt.partition.population import ClassesHeld, Population
from fedquilt.simulate.availability import ByClassAndHour
from fedquilt.simulate.dropout import DropOut
from fedquilt.simulate.simulation import Asked
from fedquilt.simulate.stragglers import Slowness

INF = float("inf")


def asked(examples, clients=None, **more):
    clients = np.arange(len(examples)) if clients is None else np.asarray(clients)
    return Asked(more.pop("round_", 1), more.pop("seed", 1), clients, np.asarray(examples), **more)


def even(deadline=INF):
    """One second an example for everybody."""
    return Slowness(1.0, spread=0.0, deadline=deadline)


def test_clients_drop_out_as_often_as_asked_independently_of_round_client_and_slot():
    """20,000 draws: within five standard deviations of p overall, and of p² for neighbours in slots and in rounds."""
    rounds, clients, p = 200, 100, 0.3
    gone = np.zeros((rounds, clients), dtype=bool)
    for number in range(rounds):
        gone[number, list(DropOut(p)(asked(np.ones(clients), round_=number + 1)).reasons)] = True
    pairs = {"slots": gone[:, 1:] & gone[:, :-1], "rounds": gone[1:] & gone[:-1]}
    assert abs(gone.mean() - p) < 5 * math.sqrt(p * (1 - p) / gone.size)
    for both in pairs.values():
        assert abs(both.mean() - p**2) < 5 * math.sqrt(2 * p**2 * (1 - p**2) / both.size)  # overlapping pairs: twice


def test_a_client_in_two_slots_drops_out_of_each_by_itself():
    fates = {tuple(DropOut(0.5)(asked([1, 1], clients=[3, 3], round_=number)).reasons) for number in range(1, 40)}
    assert fates == {(), (0,), (1,), (0, 1)}


def test_whether_a_client_drops_out_depends_on_its_slot_and_not_on_the_rest_of_the_cohort():
    rule = DropOut(0.5)
    whole = set(rule(asked(np.ones(20))).reasons)
    later = set(rule(asked(np.ones(10), clients=np.arange(10, 20), first_slot=10)).reasons)
    assert {place - 10 for place in whole if place >= 10} == later


def test_the_pace_is_log_normal_and_stays_the_same():
    """Of 5,000 clients: mean and variance of log(pace) / spread within five standard deviations of 0 and 1."""
    clients = 5000
    rule = Slowness(0.01, spread=0.5, deadline=INF)
    times = rule.times(asked(np.full(clients, 100)))
    normals = np.log(times) / 0.5
    assert abs(normals.mean()) < 5 / math.sqrt(clients)
    assert abs(normals.var() - 1) < 5 * math.sqrt(2 / clients)
    backwards = asked(np.full(clients, 200), clients=np.arange(clients)[::-1], round_=7)
    assert np.allclose(rule.times(backwards)[::-1], 2 * times)
    assert not np.allclose(rule.times(asked(np.full(clients, 100), seed=2)), times)


@pytest.mark.parametrize(
    ("examples", "deadline", "wanted", "gone", "missing", "seconds"),
    [
        ([3, 9, 5], INF, None, set(), {}, 9.0),
        ([3, 9, 5], 9.0, None, set(), {}, 9.0),
        ([3, 9, 5], 8.0, None, set(), {1: "missed the deadline: 9 s"}, 8.0),
        ([3, 9, 5], 2.0, None, set(), dict.fromkeys(range(3), "missed the deadline"), 2.0),
        ([3, 9, 5, 4], INF, 2, set(), {1: "not among the first 2", 2: "not among the first 2"}, 4.0),
        ([4, 4, 4, 4], INF, 3, set(), {3: "not among the first 3"}, 4.0),
        ([3, 9, 5], 8.0, 2, set(), {1: "missed the deadline: 9 s"}, 5.0),
        ([3, 9, 9], 8.0, 2, set(), {1: "missed the deadline: 9 s", 2: "missed the deadline: 9 s"}, 8.0),
        ([3, 9, 5, 4], INF, 2, {0}, {1: "not among the first 2"}, 5.0),
        ([3, 9], INF, None, {1}, {}, 3.0),
        ([3, 9], 8.0, None, {0, 1}, {}, 0.0),
        ([], 8.0, 0, set(), {}, 0.0),
    ],
    ids=[
        "the slowest",
        "just in time",
        "one too late",
        "all too late",
        "the first two",
        "ties by slot",
        "over-selection makes the late one unnecessary",
        "over-selection is not enough",
        "the first two of those who answer",
        "a drop-out is not waited for",
        "everybody dropped out",
        "nobody was asked",
    ],
)
def test_who_is_taken_and_how_long_the_round_lasts(examples, deadline, wanted, gone, missing, seconds):
    absence = even(deadline)(asked(examples, wanted=wanted, absent=frozenset(gone)))
    assert set(absence.reasons) == set(missing)
    assert all(absence.reasons[place].startswith(reason) for place, reason in missing.items())
    assert absence.seconds == seconds


@pytest.mark.parametrize(
    ("select", "sizes", "share", "asked"),
    [
        (Uniform(0.1), np.full(100, 1), 0.3, 13),
        (Uniform(0.1), np.full(100, 1), 0.25, 13),
        (Uniform(1.0), np.full(10, 1), 0.5, 10),
        (Uniform(0.8), np.full(10, 1), 0.5, 10),
        (Uniform(0.0), np.full(10, 1), 4.0, 5),
        (BySize(0.5, distinct=True), np.arange(10), 0.5, 8),
        (BySize(0.8, distinct=True), np.arange(10), 0.5, 9),
        (BySize(1.0), np.array([0, 5, 1]), 1.0, 6),
    ],
)
def test_more_are_asked_but_never_more_than_there_are(select, sizes, share, asked):
    for seed in range(20):
        chosen = select(sizes, np.random.default_rng(seed))
        rng = np.random.default_rng(seed)
        more = AskMore(share)(select, sizes, select(sizes, rng), rng)
        assert len(more) == asked
        assert more[: len(chosen)].tolist() == chosen.tolist()
        if select != BySize(1.0):
            assert len(set(more.tolist())) == asked


def test_those_who_are_asked_besides_are_as_likely_as_the_others():
    """4,000 cohorts of 3 and 3 more out of 10: each client in 0.6 of them, within five standard deviations."""
    counts = np.zeros(10)
    for seed in range(4000):
        rng = np.random.default_rng(seed)
        counts[AskMore(1.0)(Uniform(0.3), np.full(10, 1), Uniform(0.3)(np.full(10, 1), rng), rng)] += 1
    assert (np.abs(counts / 4000 - 0.6) < 5 * math.sqrt(0.6 * 0.4 / 4000)).all()


def test_clients_without_examples_are_not_drawn_by_size():
    assert BySize(1.0)(np.zeros(3, dtype=np.int64), np.random.default_rng(0)).tolist() == []
    assert BySize(1.0, distinct=True)(np.array([0, 4, 0]), np.random.default_rng(0)).tolist() == [1]


def population(clients, classes):
    """One example a client, of the classes in turn."""
    labels = np.arange(clients) % classes
    held = Partition.by_sizes(np.arange(clients), np.full(clients, 1))
    return Population(held.sizes, counted=ClassesHeld.of(held, labels, classes))


def test_the_probability_is_high_when_the_phase_of_the_class_comes_and_low_half_a_period_later():
    """Phase t / 8 − c / 4: class 1 is at its height in round 2, at its depth in round 6, between them in rounds 4 and 8."""
    rule = ByClassAndHour(8, low=0.2, high=0.8)
    assert [round(float(rule.probabilities(t, 4)[1]), 9) for t in (2, 4, 6, 8, 10)] == [0.8, 0.5, 0.2, 0.5, 0.8]


def test_clients_are_there_as_often_as_their_class_says():
    """4,000 clients of each of 4 classes in each of 8 rounds: all 32 frequencies within five standard deviations."""
    rule, everybody = ByClassAndHour(8, low=0.1, high=0.9), population(16_000, classes=4)
    for number in range(1, 9):
        there = rule(number, everybody, 1).reshape(-1, 4).mean(axis=0)
        expected = rule.probabilities(number, 4)
        assert (np.abs(there - expected) < 5 * np.sqrt(expected * (1 - expected) / 4000)).all()


def test_being_there_is_drawn_anew_for_every_round_and_seed():
    rule, everybody = ByClassAndHour(1, low=0.5, high=0.5), population(1000, classes=2)
    draws = [rule(1, everybody, 1), rule(2, everybody, 1), rule(1, everybody, 2)]
    assert (rule(1, everybody, 1) == draws[0]).all()
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert abs((draws[a] == draws[b]).mean() - 0.5) < 5 * math.sqrt(0.25 / 1000)


def test_a_million_clients_cost_milliseconds_a_round():
    everybody = population(1_000_000, classes=10)
    rule = ByClassAndHour(24, low=0.1, high=0.9)
    rule(1, everybody, 1)
    begun = time.perf_counter()
    for number in range(2, 7):
        rule(number, everybody, 1)
    assert (time.perf_counter() - begun) / 5 < 0.5  # 0.012 measured on a quiet core


def test_the_most_frequent_class_is_that_of_the_table_of_counts():
    rng = np.random.default_rng(0)
    labels = rng.integers(5, size=300)
    held = Partition.by_sizes(rng.permutation(300), rng.multinomial(300, np.full(60, 1 / 60)))
    counted = ClassesHeld.of(held, labels, 5)
    assert counted.counts.tolist() == held.class_counts(labels, 5).tolist()
    assert counted.commonest.tolist() == counted.counts.argmax(axis=1).tolist()
    reported = ClassesHeld.reported(dict(enumerate(counted.counts)), 60, 5)
    assert reported.commonest.tolist() == counted.commonest.tolist()
    assert reported.totals.tolist() == np.bincount(labels).tolist()


def test_sequences_have_no_most_frequent_class():
    with pytest.raises(FedquiltError, match="needs one label per example"):
        ClassesHeld.of(Partition.of([[0], [1]]), np.zeros((2, 7), dtype=np.int64), 3)
