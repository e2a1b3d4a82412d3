"""Dropping out, stragglers and availability (McMahan 2017, §1) in whole runs; with `corrupt`, what all simulations keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.state import Group
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.partition import Partition
from fedquilt.round.plan import plan
from fedquilt.simulate.availability import availability
from fedquilt.simulate.corrupt import corrupt
from fedquilt.simulate.dropout import dropout
from fedquilt.simulate.simulation import combined
from fedquilt.simulate.stragglers import stragglers

INF = float("inf")
COMMON: dict[str, Any] = {"lr": 0.1, "fraction": 0.5, "batch": 10}
NOBODY = availability(low=0.0, high=0.0)


def go(method, blobs, unbalanced, smooth, engine=None, rounds=6, **options):
    engine = engine or fedquilt.inline()
    return fedquilt.train(smooth, blobs, unbalanced, method, rounds=rounds, seed=1, engine=engine, **options)


def timeless(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


SIMULATED = {
    "dropout": [dropout(probability=0.4)],
    "stragglers": [stragglers(deadline=0.6, over_select=0.5)],
    "availability": [availability(period=4, low=0.0, high=0.8)],
    "sign_flip": [corrupt(share=0.4)],
    "noise": [corrupt(share=0.4, kind="noise", strength=0.01)],
    "label_flip": [corrupt(share=0.4, kind="label_flip")],
    "all": [dropout(0.2), stragglers(deadline=1.0, over_select=1.0), availability(), corrupt(0.3)],
}


@pytest.mark.parametrize("name", SIMULATED)
def test_engines_give_the_same_bits_and_records(name, blobs, unbalanced, smooth):
    method = fedquilt.fed_avg(**COMMON)
    first = go(method, blobs, unbalanced, smooth, simulate=SIMULATED[name])
    second = go(method, blobs, unbalanced, smooth, engine=fedquilt.processes(workers=2), simulate=SIMULATED[name])
    assert first.digest == second.digest
    assert timeless(first.history) == timeless(second.history)
    assert first.digest != go(fedquilt.fed_avg(**COMMON), blobs, unbalanced, smooth).digest


class StopError(Exception):
    """Raised in the middle of a run, as a crash would."""


class StopAfter:
    def __init__(self, last):
        self.last = last

    def begin(self, history, last):
        pass

    def heard(self, clients, total):
        assert clients <= total

    def round(self, record):
        if record["round"] == self.last:
            raise StopError


@pytest.mark.parametrize("name", SIMULATED)
def test_a_resumed_run_equals_an_uninterrupted_one(name, blobs, unbalanced, smooth, tmp_path):
    method, simulate = fedquilt.fed_avg_m(**COMMON), SIMULATED[name]
    whole = go(method, blobs, unbalanced, smooth, simulate=simulate)
    broken = {"out": tmp_path / "run", "watcher": StopAfter(3), "checkpoint_seconds": 0.0}
    with pytest.raises(StopError):
        go(method, blobs, unbalanced, smooth, simulate=simulate, **broken)
    resumed = go(method, blobs, unbalanced, smooth, simulate=simulate, out=tmp_path / "run")
    assert resumed.digest == whole.digest
    assert timeless(resumed.history) == timeless(whole.history)


@pytest.mark.parametrize(
    "limit",
    [
        dropout(probability=0.0),
        corrupt(share=0.0),
        stragglers(),
        availability(low=1.0, high=1.0),
        dropout(probability=1e-12),
        corrupt(share=0.01),
    ],
    ids=["no dropout", "none corrupt", "no deadline", "always there", "almost no dropout", "less than one corrupt"],
)
def test_limits_that_change_nothing_are_the_method_to_the_bit(limit, blobs, unbalanced, smooth):
    base = fedquilt.fed_avg(**COMMON)
    assert go(base, blobs, unbalanced, smooth, simulate=[limit]).digest == go(base, blobs, unbalanced, smooth).digest


def test_without_dropout_or_corruption_nothing_is_simulated():
    assert dropout(0.0) == corrupt(0.0) == fedquilt.Simulation()


def test_who_drops_out_has_received_the_model_and_sends_nothing(blobs, unbalanced, smooth):
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=10)
    plain = go(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=10), blobs, unbalanced, smooth, rounds=1).history.records[0]
    model = plain["bytes_down"] // 6
    seen = set()
    for record in go(method, blobs, unbalanced, smooth, rounds=8, simulate=[dropout(0.4)]).history:
        gone = [absence["client"] for absence in record.get("absent", [])]
        assert sorted(record["clients"] + gone) == list(range(6))
        assert record["bytes_down"] == 6 * model
        assert record["bytes_up"] == len(record["clients"]) * model
        assert record["dropped"] == []
        assert {absence["reason"] for absence in record.get("absent", [])} <= {"dropped out"}
        seen |= set(gone)
    assert len(seen) > 3


def test_the_weights_are_over_those_who_respond(blobs, unbalanced, smooth):
    """One round in which some drop out is, but for rounding, a round of those who stay alone."""
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=INF)
    some = go(method, blobs, unbalanced, smooth, rounds=1, simulate=[dropout(probability=0.5)])
    stayed = some.history.records[0]["clients"]
    assert 0 < len(stayed) < 6
    alone = Partition.of([unbalanced.client(k) for k in sorted(stayed)])
    other = go(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=INF), blobs, alone, smooth, rounds=1)
    assert (some.state.vector - other.state.vector).abs().max() < 1e-6


@pytest.mark.parametrize("engine", [fedquilt.inline(), fedquilt.processes(workers=2)], ids=["inline", "processes"])
@pytest.mark.parametrize(
    ("method", "simulate"),
    [
        (fedquilt.fed_avg(**COMMON), [dropout(probability=0.9999999999)]),
        (fedquilt.fed_avg(**COMMON), [stragglers(deadline=1e-9)]),
        (fedquilt.fed_avg(**COMMON), [NOBODY]),
        (fedquilt.fed_avg_m(**COMMON), [dropout(), stragglers(over_select=0.5), NOBODY]),
        (fedquilt.fed_vc(fedquilt.fed_avg(batch=8), size=16), [NOBODY]),
    ],
    ids=["all drop out", "all too late", "nobody there", "nobody there, with the others", "nobody there, by size"],
)
def test_a_round_without_anybody_leaves_the_model_as_it_was(
    method, simulate, engine, blobs, unbalanced, smooth, tmp_path
):
    options = {"rounds": 2, "diagnose": True, "train_loss": True, "simulate": simulate, "out": tmp_path / "run"}
    result = go(method, blobs, unbalanced, smooth, engine, **options)
    for record in result.history:
        assert record["applied"] is False
        assert record["local_loss"] is None
        assert record["clients"] == record["dropped"] == []
        assert record["steps"] == record["examples"] == record["bytes_up"] == 0
        assert record["accuracy"] is not None
    if NOBODY in simulate:
        assert all(record["bytes_down"] == 0 and "absent" not in record for record in result.history)
    before = dict(smooth.named_parameters())
    assert all((before[name] == value).all() for name, value in result.model.named_parameters())
    assert fedquilt.summary(tmp_path / "run")["rounds"] == 2


def test_rounds_with_and_without_clients_may_follow_each_other(blobs, unbalanced, smooth):
    """All clients are of class 0, whose height is in even rounds with a period of 2, its depth in odd ones."""
    method, simulate = fedquilt.fed_avg_m(lr=0.1, fraction=1.0), [availability(period=2, low=0.0, high=1.0)]
    data = fedquilt.arrays(blobs.train.x, blobs.train.y * 0, blobs.test.x, blobs.test.y, classes=3)
    history = go(method, data, unbalanced, smooth, rounds=5, simulate=simulate).history
    assert [record["applied"] for record in history] == [False, True, False, True, False]
    assert [len(record["clients"]) for record in history] == [0, 6, 0, 6, 0]


def test_the_fraction_is_of_the_clients_that_are_there(federate):
    method, simulation = fedquilt.fed_avg(fraction=0.5), availability(low=0.5, high=0.5)
    federation = federate(method, simulation=simulation)
    for seed in range(50):
        there = np.flatnonzero(simulation.available(1, federation.population, seed))
        group = Group(initial_state(method, federation.initial))
        asked = plan(method, group, federation.population, seed, simulation=simulation).clients
        assert set(asked.tolist()) <= set(there.tolist())
        assert len(asked) == (max(int(len(there) / 2 + 0.5), 1) if len(there) else 0)


def test_a_round_takes_as_long_as_its_slowest_client(blobs, unbalanced, smooth):
    """E = 2 passes over 5, 100, 17, 60, 38 and 20 examples at 0.01 s: 0.1, 2, 0.34, 1.2, 0.76 and 0.4 s."""
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=2, batch=10)
    simulate = [stragglers(spread=0.0)]
    record = go(base, blobs, unbalanced, smooth, rounds=1, simulate=simulate).history.records[0]
    assert record["simulated_seconds"] == pytest.approx(2.0)
    assert "absent" not in record
    simulate = [stragglers(spread=0.0, deadline=0.8)]
    record = go(base, blobs, unbalanced, smooth, rounds=1, simulate=simulate).history.records[0]
    assert record["simulated_seconds"] == 0.8
    assert sorted(record["clients"]) == [0, 2, 4, 5]
    reasons = {absence["client"]: absence["reason"] for absence in record["absent"]}
    assert reasons == {1: "missed the deadline: 2 s", 3: "missed the deadline: 1.2 s"}


def test_with_over_selection_the_first_to_answer_are_taken(blobs, unbalanced, smooth):
    """Three of six are needed and all six asked: 0, 2 and 5 are the fastest, the slowest of them at 0.2 s."""
    base = fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=10)
    for deadline in (INF, 0.5):
        simulate = [stragglers(spread=0.0, deadline=deadline, over_select=1.0)]
        for record in go(base, blobs, unbalanced, smooth, rounds=2, simulate=simulate).history:
            assert sorted(record["clients"]) == [0, 2, 5]
            assert record["simulated_seconds"] == pytest.approx(0.2)
            late = {absence["client"] for absence in record["absent"] if "deadline" in absence["reason"]}
            assert late == ({1, 3} if deadline == 0.5 else set())
            assert {a["reason"] for a in record["absent"] if a["client"] == 4} == {"not among the first 3"}


@pytest.mark.parametrize("dropout_first", [True, False])
def test_over_selection_makes_up_for_those_who_drop_out(dropout_first, blobs, unbalanced, smooth):
    """Whatever the order of the tables, the first three of those who answer are taken, if there are as many."""
    method = fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=10)
    both = [dropout(0.3), stragglers(over_select=1.0)]
    simulate = both if dropout_first else both[::-1]
    history = go(method, blobs, unbalanced, smooth, rounds=12, simulate=simulate).history
    for record in history:
        gone = [absence for absence in record["absent"] if absence["reason"] == "dropped out"]
        assert len(record["clients"]) == min(3, 6 - len(gone))
    assert any("dropped out" in str(record["absent"]) for record in history)


def test_dropout_stragglers_and_virtual_clients_go_together_in_any_order(blobs, unbalanced, smooth):
    """FedVC's clients all process 32 examples, so that their time is 0.32 s × pace; slots of one client take the same."""
    method = fedquilt.fed_vc(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8), size=32)
    simulate = [dropout(0.2), stragglers(deadline=0.6, over_select=0.5)]
    results = [go(method, blobs, unbalanced, smooth, rounds=8, simulate=order) for order in (simulate, simulate[::-1])]
    assert len({result.digest for result in results}) == 1
    for record in results[0].history:
        assert len(record["clients"]) + len(record["absent"]) == 9
        assert record["examples"] == 32 * len(record["clients"]) <= 32 * 6
    assert results[0].history.loss[-1] < results[0].history.loss[0]


def test_applied_twice_they_must_agree():
    for one in (dropout(0.2), stragglers(over_select=0.3), availability()):
        assert combined([one, one]) == combined([one])
    for first, second in (
        (dropout(0.2), dropout(0.3)),
        (stragglers(deadline=3.0), stragglers(deadline=4.0)),
        (stragglers(), stragglers(over_select=0.3)),
        (availability(), availability(period=7)),
    ):
        with pytest.raises(SpecError, match=f"{first.name} is applied twice, with different values"):
            combined([first, second])


def test_two_that_set_the_same_thing_are_named():
    own = fedquilt.Simulation("weekdays", available=availability().available)
    with pytest.raises(SpecError, match=r"availability and weekdays both set `available` \(who can be asked\)"):
        combined([availability(), own])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: dropout(1.0), "probability: must be less than 1, got 1.0"),
        (lambda: dropout(-0.1), "probability: must be at least 0"),
        (lambda: stragglers(seconds_per_example=0.0), "seconds_per_example: must be greater than 0"),
        (lambda: stragglers(spread=-1.0), "spread: must be at least 0"),
        (lambda: stragglers(deadline=0.0), "deadline: must be greater than 0"),
        (lambda: stragglers(over_select=-0.1), "over_select: must be at least 0"),
        (lambda: availability(period=0), "period: must be at least 1"),
        (lambda: availability(high=1.1), "high: must be at most 1"),
        (lambda: corrupt(share=1.0), "share: must be less than 1"),
        (lambda: corrupt(kind="zero"), "kind: must be one of 'nan', 'sign_flip', 'noise' or 'label_flip'"),  # type: ignore[arg-type]
        (lambda: corrupt(strength=0.0), "strength: must be greater than 0"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ArgumentError, match=message):
        wrong()


def test_low_above_high_is_refused():
    with pytest.raises(SpecError, match=r"low: must be at most high, 0\.2, got 0\.8"):
        availability(low=0.8, high=0.2)


def test_sequences_are_refused_where_classes_are_needed():
    x, y = np.zeros((6, 4), dtype=np.int64), np.zeros((6, 4), dtype=np.int64)
    data, held = fedquilt.arrays(x, y, x, y, classes=3, name="words"), Partition.of([[0, 1, 2], [3, 4, 5]])
    model = nn.Embedding(3, 3)
    for simulation, message in (
        (availability(), "needs one label per example"),
        (corrupt(0.5, "label_flip"), "labels can be flipped only if every example has one class label; words"),
    ):
        with pytest.raises(FedquiltError, match=message):
            go(fedquilt.fed_avg(), data, held, model, rounds=1, simulate=[simulation])
