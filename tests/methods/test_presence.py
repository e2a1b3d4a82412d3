"""Dropping out, stragglers and availability (McMahan 2017, §1) in whole runs; with `corrupt`, what all wrappers keep."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import fedquilt
from fedquilt.arguments import ArgumentError
from fedquilt.core.plan import plan
from fedquilt.core.state import Group, initial_state
from fedquilt.errors import FedquiltError, SpecError
from fedquilt.methods.availability import availability
from fedquilt.methods.corrupt import corrupt
from fedquilt.methods.dropout import dropout
from fedquilt.methods.stragglers import stragglers
from fedquilt.partition import Partition

INF = float("inf")
COMMON = {"lr": 0.1, "fraction": 0.5, "batch": 10}


def go(method, blobs, unbalanced, smooth, engine=None, rounds=6, **options):
    engine = engine or fedquilt.inline()
    return fedquilt.train(smooth, blobs, unbalanced, method, rounds=rounds, seed=1, engine=engine, **options)


def timeless(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


WRAPPED = {
    "dropout": lambda base: dropout(base, probability=0.4),
    "stragglers": lambda base: stragglers(base, deadline=0.6, over_select=0.5),
    "availability": lambda base: availability(base, period=4, low=0.0, high=0.8),
    "sign_flip": lambda base: corrupt(base, share=0.4),
    "noise": lambda base: corrupt(base, share=0.4, kind="noise", strength=0.01),
    "label_flip": lambda base: corrupt(base, share=0.4, kind="label_flip"),
    "all": lambda base: corrupt(availability(stragglers(dropout(base, 0.2), deadline=1.0, over_select=1.0)), 0.3),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_engines_give_the_same_bits_and_records(name, blobs, unbalanced, smooth):
    method = WRAPPED[name](fedquilt.fed_avg(**COMMON))
    first = go(method, blobs, unbalanced, smooth)
    second = go(method, blobs, unbalanced, smooth, engine=fedquilt.processes(workers=2))
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


@pytest.mark.parametrize("name", WRAPPED)
def test_a_resumed_run_equals_an_uninterrupted_one(name, blobs, unbalanced, smooth, tmp_path):
    method = WRAPPED[name](fedquilt.fed_avg_m(**COMMON))
    whole = go(method, blobs, unbalanced, smooth)
    broken = {"out": tmp_path / "run", "watcher": StopAfter(3), "checkpoint_seconds": 0.0}
    with pytest.raises(StopError):
        go(method, blobs, unbalanced, smooth, **broken)
    resumed = go(method, blobs, unbalanced, smooth, out=tmp_path / "run")
    assert resumed.digest == whole.digest
    assert timeless(resumed.history) == timeless(whole.history)


@pytest.mark.parametrize(
    "limit",
    [
        lambda base: dropout(base, probability=0.0),
        lambda base: corrupt(base, share=0.0),
        stragglers,
        lambda base: availability(base, low=1.0, high=1.0),
        lambda base: dropout(base, probability=1e-12),
        lambda base: corrupt(base, share=0.01),
    ],
    ids=["no dropout", "none corrupt", "no deadline", "always there", "almost no dropout", "less than one corrupt"],
)
def test_limits_that_change_nothing_are_the_method_to_the_bit(limit, blobs, unbalanced, smooth):
    base = fedquilt.fed_avg(**COMMON)
    assert go(limit(base), blobs, unbalanced, smooth).digest == go(base, blobs, unbalanced, smooth).digest


def test_without_dropout_or_corruption_the_method_itself_comes_back():
    base = fedquilt.fed_avg()
    assert dropout(base, 0.0) is base
    assert corrupt(base, 0.0) is base


def test_who_drops_out_has_received_the_model_and_sends_nothing(blobs, unbalanced, smooth):
    method = dropout(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=10), probability=0.4)
    plain = go(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=10), blobs, unbalanced, smooth, rounds=1).history.records[0]
    model = plain["bytes_down"] // 6
    seen = set()
    for record in go(method, blobs, unbalanced, smooth, rounds=8).history:
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
    method = dropout(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=INF), probability=0.5)
    some = go(method, blobs, unbalanced, smooth, rounds=1)
    stayed = some.history.records[0]["clients"]
    assert 0 < len(stayed) < 6
    alone = Partition.of([unbalanced.client(k) for k in sorted(stayed)])
    other = go(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=INF), blobs, alone, smooth, rounds=1)
    assert (some.state.vector - other.state.vector).abs().max() < 1e-6


@pytest.mark.parametrize("engine", [fedquilt.inline(), fedquilt.processes(workers=2)], ids=["inline", "processes"])
@pytest.mark.parametrize(
    "method",
    [
        dropout(fedquilt.fed_avg(**COMMON), probability=0.9999999999),
        stragglers(fedquilt.fed_avg(**COMMON), deadline=1e-9),
        availability(fedquilt.fed_avg(**COMMON), low=0.0, high=0.0),
        availability(stragglers(dropout(fedquilt.fed_avg_m(**COMMON)), over_select=0.5), low=0.0, high=0.0),
        availability(fedquilt.fed_vc(fedquilt.fed_avg(batch=8), size=16), low=0.0, high=0.0),
    ],
    ids=["all drop out", "all too late", "nobody there", "nobody there, with the others", "nobody there, by size"],
)
def test_a_round_without_anybody_leaves_the_model_as_it_was(method, engine, blobs, unbalanced, smooth, tmp_path):
    result = go(
        method, blobs, unbalanced, smooth, engine, rounds=2, diagnose=True, train_loss=True, out=tmp_path / "run"
    )
    for record in result.history:
        assert record["applied"] is False
        assert record["local_loss"] is None
        assert record["clients"] == record["dropped"] == []
        assert record["steps"] == record["examples"] == record["bytes_up"] == 0
        assert record["accuracy"] is not None
    if method.available is not None:
        assert all(record["bytes_down"] == 0 and "absent" not in record for record in result.history)
    before = dict(smooth.named_parameters())
    assert all((before[name] == value).all() for name, value in result.model.named_parameters())
    assert fedquilt.summary(tmp_path / "run")["rounds"] == 2


def test_rounds_with_and_without_clients_may_follow_each_other(blobs, unbalanced, smooth):
    """All clients are of class 0, whose height is in even rounds with a period of 2, its depth in odd ones."""
    method = availability(fedquilt.fed_avg_m(lr=0.1, fraction=1.0), period=2, low=0.0, high=1.0)
    data = fedquilt.arrays(blobs.train.x, blobs.train.y * 0, blobs.test.x, blobs.test.y, classes=3)
    history = go(method, data, unbalanced, smooth, rounds=5).history
    assert [record["applied"] for record in history] == [False, True, False, True, False]
    assert [len(record["clients"]) for record in history] == [0, 6, 0, 6, 0]


def test_the_fraction_is_of_the_clients_that_are_there(federate):
    method = availability(fedquilt.fed_avg(fraction=0.5), low=0.5, high=0.5)
    federation = federate(method)
    for seed in range(50):
        there = np.flatnonzero(method.available(1, federation.population, seed))
        group = Group(initial_state(method, federation.initial))
        asked = plan(method, group, federation.population, seed).clients
        assert set(asked.tolist()) <= set(there.tolist())
        assert len(asked) == (max(int(len(there) / 2 + 0.5), 1) if len(there) else 0)


def test_a_round_takes_as_long_as_its_slowest_client(blobs, unbalanced, smooth):
    """E = 2 passes over 5, 100, 17, 60, 38 and 20 examples at 0.01 s: 0.1, 2, 0.34, 1.2, 0.76 and 0.4 s."""
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=2, batch=10)
    record = go(stragglers(base, spread=0.0), blobs, unbalanced, smooth, rounds=1).history.records[0]
    assert record["simulated_seconds"] == pytest.approx(2.0)
    assert "absent" not in record
    record = go(stragglers(base, spread=0.0, deadline=0.8), blobs, unbalanced, smooth, rounds=1).history.records[0]
    assert record["simulated_seconds"] == 0.8
    assert sorted(record["clients"]) == [0, 2, 4, 5]
    reasons = {absence["client"]: absence["reason"] for absence in record["absent"]}
    assert reasons == {1: "missed the deadline: 2 s", 3: "missed the deadline: 1.2 s"}


def test_with_over_selection_the_first_to_answer_are_taken(blobs, unbalanced, smooth):
    """Three of six are needed and all six asked: 0, 2 and 5 are the fastest, the slowest of them at 0.2 s."""
    base = fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=10)
    for deadline in (INF, 0.5):
        method = stragglers(base, spread=0.0, deadline=deadline, over_select=1.0)
        for record in go(method, blobs, unbalanced, smooth, rounds=2).history:
            assert sorted(record["clients"]) == [0, 2, 5]
            assert record["simulated_seconds"] == pytest.approx(0.2)
            late = {absence["client"] for absence in record["absent"] if "deadline" in absence["reason"]}
            assert late == ({1, 3} if deadline == 0.5 else set())
            assert {a["reason"] for a in record["absent"] if a["client"] == 4} == {"not among the first 3"}


@pytest.mark.parametrize("dropout_first", [True, False])
def test_over_selection_makes_up_for_those_who_drop_out(dropout_first, blobs, unbalanced, smooth):
    """Whatever the order of the wrappers, the first three of those who answer are taken, if there are as many."""
    method = fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=10)
    steps = [lambda base: dropout(base, 0.3), lambda base: stragglers(base, over_select=1.0)]
    for step in steps if dropout_first else steps[::-1]:
        method = step(method)
    history = go(method, blobs, unbalanced, smooth, rounds=12).history
    for record in history:
        gone = [absence for absence in record["absent"] if absence["reason"] == "dropped out"]
        assert len(record["clients"]) == min(3, 6 - len(gone))
    assert any("dropped out" in str(record["absent"]) for record in history)


def test_dropout_stragglers_and_virtual_clients_go_together_in_any_order(blobs, unbalanced, smooth):
    """FedVC's clients all process 32 examples, so that their time is 0.32 s × pace; slots of one client take the same."""
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8)
    steps = [
        lambda method: dropout(method, 0.2),
        lambda method: stragglers(method, deadline=0.6, over_select=0.5),
        lambda method: fedquilt.fed_vc(method, size=32),
    ]
    results = []
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        method = base
        for step in order:
            method = steps[step](method)
        results.append(go(method, blobs, unbalanced, smooth, rounds=8))
    assert len({result.digest for result in results}) == 1
    for record in results[0].history:
        assert len(record["clients"]) + len(record["absent"]) == 9
        assert record["examples"] == 32 * len(record["clients"]) <= 32 * 6
    assert results[0].history.loss[-1] < results[0].history.loss[0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda base: dropout(base, 1.0), "probability: must be less than 1, got 1.0"),
        (lambda base: dropout(base, -0.1), "probability: must be at least 0"),
        (lambda base: stragglers(base, seconds_per_example=0.0), "seconds_per_example: must be greater than 0"),
        (lambda base: stragglers(base, spread=-1.0), "spread: must be at least 0"),
        (lambda base: stragglers(base, deadline=0.0), "deadline: must be greater than 0"),
        (lambda base: stragglers(base, over_select=-0.1), "over_select: must be at least 0"),
        (lambda base: availability(base, period=0), "period: must be at least 1"),
        (lambda base: availability(base, high=1.1), "high: must be at most 1"),
        (lambda base: corrupt(base, share=1.0), "share: must be less than 1"),
        (lambda base: corrupt(base, kind="zero"), "kind: must be one of 'nan', 'sign_flip', 'noise' or 'label_flip'"),
        (lambda base: corrupt(base, strength=0.0), "strength: must be greater than 0"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ArgumentError, match=message):
        wrong(fedquilt.fed_avg())


def test_low_above_high_is_refused():
    with pytest.raises(SpecError, match=r"low: must be at most high, 0\.2, got 0\.8"):
        availability(fedquilt.fed_avg(), low=0.8, high=0.2)


def test_sequences_are_refused_where_classes_are_needed():
    x, y = np.zeros((6, 4), dtype=np.int64), np.zeros((6, 4), dtype=np.int64)
    data, held = fedquilt.arrays(x, y, x, y, classes=3, name="words"), Partition.of([[0, 1, 2], [3, 4, 5]])
    model = nn.Embedding(3, 3)
    for method, message in (
        (availability(fedquilt.fed_avg()), "needs one label an example"),
        (corrupt(fedquilt.fed_avg(), 0.5, "label_flip"), "labels can be flipped only where an example has one; words"),
    ):
        with pytest.raises(FedquiltError, match=message):
            go(method, data, held, model, rounds=1)
