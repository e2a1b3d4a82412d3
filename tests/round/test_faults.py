"""Clients that fail are left out, named with the reason, and the round goes on."""

from __future__ import annotations

import math
import re
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.state import ClientStore, Group
from fedquilt.algorithm.transform import Transform, stateless
from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, Fault
from fedquilt.base.errors import OverflowInSumError
from fedquilt.compute.layout import ModelState
from fedquilt.round.merge import merge
from fedquilt.round.plan import plan

pytestmark = pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")

EVERYONE = {"lr": 0.1, "fraction": 1.0, "batch": 10}


def poisoned(blobs, unbalanced, client, value):
    """The same data with one example of a client replaced."""
    x = blobs.train.x.clone()
    x[unbalanced.client(client)[0]] = value
    return replace(blobs, train=replace(blobs.train, x=x))


class Touchy(nn.Module):
    """Raises on inputs above 1e6."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        if x.max() > 1e6:
            raise RuntimeError("the sensor is broken")
        return self.linear(x)


def answer_of(planned, slot, **parts):
    """An update as the client of a slot would send it, but for these parts."""
    size = planned.size_of(slot)
    none, whole = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    update = ClientUpdate(planned.client_of[slot], slot, none, none, whole, float(size), 1.0, 1, size)
    return replace(update, **parts)


def longer(direction, state, at):
    return {name: torch.cat([d, d[:1]]) for name, d in direction.items()}, state


def minus_for_17(examples):
    return -1.0 if examples == 17 else float(examples)


ENGINES = [fedquilt.inline(), fedquilt.processes(workers=2)]


@pytest.mark.parametrize("engine", ENGINES, ids=["inline", "processes"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_unusable_numbers(engine, value, blobs, unbalanced):
    torch.manual_seed(0)
    linear = nn.Linear(8, 3)
    data = poisoned(blobs, unbalanced, 1, value)
    result = fedquilt.train(linear, data, unbalanced, fedquilt.fed_avg(**EVERYONE), rounds=2, engine=engine)
    for record in result.history:
        assert [entry["client"] for entry in record["dropped"]] == [1]
        assert record["dropped"][0]["reason"].startswith("sent NaN")
        assert sorted(record["clients"]) == [0, 2, 3, 4, 5]
        assert record["applied"]
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


@pytest.mark.parametrize("engine", ENGINES, ids=["inline", "processes"])
def test_a_client_that_raises_is_named_with_the_step(engine, blobs, unbalanced):
    data = poisoned(blobs, unbalanced, 3, 1e7)
    result = fedquilt.train(Touchy(), data, unbalanced, fedquilt.fed_avg(**EVERYONE), rounds=1, engine=engine)
    (dropped,) = result.history.records[0]["dropped"]
    assert dropped["client"] == 3
    assert re.fullmatch(
        r"local step \d+: RuntimeError: the sensor is broken \(test_faults.py, line \d+\)", dropped["reason"]
    )


@pytest.mark.parametrize("engine", ENGINES, ids=["inline", "processes"])
def test_a_negative_weight(engine, federate, blobs, unbalanced, smooth):
    method = replace(fedquilt.fed_avg(**EVERYONE), weigh=minus_for_17)
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=engine)
    assert result.history.records[0]["dropped"] == [
        {"client": 2, "kind": "unusable update", "reason": "sent a negative weight (-1)"}
    ]


@pytest.mark.parametrize("engine", ENGINES, ids=["inline", "processes"])
def test_a_wrong_length_and_nobody_left_keeps_the_model(engine, blobs, unbalanced, smooth):
    method = replace(fedquilt.fed_avg_m(**EVERYONE), upload=Transform(stateless, longer))
    before = [p.clone() for p in smooth.parameters()]
    with pytest.warns(RuntimeWarning, match="the run failed: 2 of 2 rounds changed nothing"):
        result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=engine)
    for record in result.history:
        assert len(record["dropped"]) == 6
        assert record["dropped"][0]["reason"] == "sent an update of the shape (76,), but it must be (75,)"
        assert record["applied"] is False
        assert record["clients"] == []
        assert record["local_loss"] is None
    assert all(torch.equal(a, b) for a, b in zip(before, result.model.parameters(), strict=True))


@pytest.mark.filterwarnings("default:client .* was left out:RuntimeWarning")
def test_the_first_client_that_is_left_out_is_warned_of_and_no_other(blobs, unbalanced):
    data = poisoned(blobs, unbalanced, 1, math.nan)
    with pytest.warns(RuntimeWarning, match="client 1 was left out of round 1: sent NaN") as caught:
        fedquilt.train(
            nn.Linear(8, 3), data, unbalanced, fedquilt.fed_avg(**EVERYONE), rounds=3, engine=fedquilt.inline()
        )
    assert len(caught) == 1


def test_weights_are_over_those_who_reported(federate, blobs, unbalanced):
    """The next model is w + Σ n_k Δ_k / Σ n_k over the clients that are left."""
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    with fedquilt.inline().open(federation) as session:
        planned = plan(federation.algorithm, Group(state), federation.population, 1)
        updates = list(session.run(planned, state, ClientStore()))
    left = [update for update in updates if update.client not in (1, 4)]
    faults = [Fault(update.client, update.slot, "late") for update in updates if update.client in (1, 4)]
    after, merged = merge(federation.algorithm, federation.layout, state, planned, [*faults, *left])
    total = sum(update.weight for update in left)
    expected = state.model.vector.double() + sum(u.weight * u.delta.double() for u in left) / total
    assert (after.model.vector.double() - expected).abs().max() < 1e-6
    assert [fault.client for fault in merged.faults] == [f.client for f in sorted(faults, key=lambda f: f.slot)]
    assert sorted(merged.clients) == [0, 2, 3, 5]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_weight_that_is_no_number(value, federate, unbalanced):
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    planned = plan(federation.algorithm, Group(state), federation.population, 1)
    update = answer_of(planned, 0, delta=torch.ones(federation.layout.size), weight=value)
    after, merged = merge(federation.algorithm, federation.layout, state, planned, [update])
    assert after.model is state.model
    assert "weight" in merged.faults[0].reason


@pytest.mark.parametrize("value", [math.inf, -math.inf, 2.0**20, -(2.0**21)], ids=str)
def test_infinite_and_too_large_values(value, federate, unbalanced):
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    planned = plan(federation.algorithm, Group(state), federation.population, 1)
    delta = torch.zeros(federation.layout.size)
    delta[3] = value
    update = answer_of(planned, 0, delta=delta)
    _, merged = merge(federation.algorithm, federation.layout, state, planned, [update])
    assert "infinite" in merged.faults[0].reason or "the limit is 1048576" in merged.faults[0].reason


@pytest.mark.parametrize("times", [1e-5, 1e5, 1e12, 1e300], ids=str)
def test_another_weight_than_the_planned_one_is_the_clients_fault(times, federate):
    """Believed, 10^12 times the weight would leave the range of the exact sum, and 10^5 times would be the whole mean."""
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    planned = plan(federation.algorithm, Group(state), federation.population, 1)
    delta = torch.full((federation.layout.size,), 2.0**19)
    answers = [answer_of(planned, slot, delta=delta) for slot in planned.slots]
    answers[2] = replace(answers[2], weight=answers[2].weight * times)
    after, merged = merge(federation.algorithm, federation.layout, state, planned, answers)
    (fault,) = merged.faults
    assert (fault.slot, fault.kind) == (2, "unusable update")
    assert re.fullmatch(r"sent the weight .*; the plan says \d+", fault.reason)
    assert torch.equal(after.model.vector, state.model.vector + 2.0**19)


def test_the_largest_values_that_pass_never_overflow_the_sum(federate):
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    planned = plan(federation.algorithm, Group(state), federation.population, 1)
    delta = torch.full((federation.layout.size,), math.nextafter(2.0**20, 0))
    delta = torch.nextafter(delta, torch.zeros_like(delta))
    answers = [answer_of(planned, slot, delta=delta) for slot in planned.slots]
    after, merged = merge(federation.algorithm, federation.layout, state, planned, answers)
    assert merged.faults == []
    assert torch.equal(after.model.vector, state.model.vector + delta)


def test_a_slot_is_answered_once_by_its_own_client_and_all_are_answered(federate):
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    planned = plan(federation.algorithm, Group(state), federation.population, 1)
    ones = torch.ones(federation.layout.size)
    first, second, third, *rest = [answer_of(planned, slot, delta=ones) for slot in planned.slots]
    wrong = [
        replace(first, delta=100 * ones),
        replace(second, slot=99),
        replace(third, client=first.client),
    ]
    answers = [first, *wrong, *rest]
    after, merged = merge(federation.algorithm, federation.layout, state, planned, answers)
    assert [(fault.slot, fault.reason) for fault in merged.faults] == [
        (0, "answered a second time in slot 0"),
        (1, "did not answer"),
        (2, "answered in slot 2, which is not its own in this round"),
        (2, "did not answer"),
        (99, "answered in slot 99, which is not its own in this round"),
    ]
    assert sorted(merged.clients) == sorted([first.client, *(answer.client for answer in rest)])
    assert torch.equal(after.model.vector, state.model.vector + 1)


def test_a_block_with_a_wrong_slot_or_weight_is_taken_apart(federate):
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    planned = plan(federation.algorithm, Group(state), federation.population, 1)
    ones = torch.ones(federation.layout.size)
    answers = [answer_of(planned, slot, delta=ones) for slot in planned.slots]
    block = BlockUpdate(
        [answer.client for answer in answers],
        [answer.slot for answer in answers],
        ModelState(torch.ones(6, len(ones)), torch.zeros(6, 0), torch.zeros(6, 0, dtype=torch.int64)),
        [answer.weight for answer in answers],
        *([[1] * 6] * 3),
    )
    tampered = {"slots": [0, 1, 2, 3, 4, 4], "weights": [*block.weights[:5], 1e300], "steps": [1, 1, 1, 1, 1, -1]}
    tampered |= {"losses": [1.0] * 5 + [None], "examples": [1] * 5 + ["many"]}
    for name, column in tampered.items():
        _, merged = merge(federation.algorithm, federation.layout, state, planned, [replace(block, **{name: column})])
        assert merged.clients == [answer.client for answer in answers[:5]], name
        assert {fault.client for fault in merged.faults} == {answers[5].client}, name


class Counts(int):
    """Raises when it is compared."""

    def __le__(self, other):
        raise SystemExit

    __ge__ = __le__


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("weight", "loss", "steps", "examples") for value in (None, "1", torch.ones(1))),
        *((name, value) for name in ("steps", "examples") for value in (1.0, True, Counts(1))),
    ],
)
def test_numbers_of_another_type_are_the_clients_fault(name, value, federate):
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    planned = plan(federation.algorithm, Group(state), federation.population, 1)
    ones = torch.ones(federation.layout.size)
    first, *rest = [answer_of(planned, slot, delta=ones) for slot in planned.slots]
    answers = [replace(first, **{name: value}), *rest]
    _, merged = merge(federation.algorithm, federation.layout, state, planned, answers)
    (fault,) = merged.faults
    assert (fault.client, fault.kind) == (first.client, "unusable update")
    assert fault.reason == f"sent {name} of the type {type(value).__name__}; it must be a plain number"
    assert sorted(merged.clients) == sorted(answer.client for answer in rest)


class Odd(nn.Module):
    """Evaluates only small batches."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        if not self.training and len(x) > 1:
            raise RuntimeError("too many at once")
        return self.linear(x)


@pytest.mark.parametrize("engine", ENGINES, ids=["inline", "processes"])
def test_a_model_that_cannot_be_evaluated_ends_the_run_with_one_message(engine, blobs, unbalanced):
    with pytest.raises(fedquilt.FedquiltError, match="could not be evaluated: RuntimeError: too many at once"):
        fedquilt.train(Odd(), blobs, unbalanced, fedquilt.fed_avg(), rounds=1, engine=engine)


@pytest.mark.parametrize("engine", ENGINES, ids=["inline", "processes"])
@pytest.mark.parametrize("weigh", [np.float32, torch.tensor], ids=["numpy", "tensor"])
def test_weights_may_be_numbers_of_any_kind(engine, weigh, blobs, unbalanced, smooth):
    method = replace(fedquilt.fed_avg(**EVERYONE), weigh=weigh)
    plain = fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(**EVERYONE), rounds=1, engine=engine)
    assert fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=engine).digest == plain.digest


def column(direction, state, at):
    return {name: d[:, None] for name, d in direction.items()}, state


@pytest.mark.parametrize("engine", ENGINES, ids=["inline", "processes"])
def test_an_update_of_another_shape_is_a_fault_in_every_engine(engine, blobs, unbalanced, smooth):
    method = replace(fedquilt.fed_avg(**EVERYONE), upload=Transform(stateless, column))
    with pytest.warns(RuntimeWarning, match="the run failed: 1 of 1 rounds changed nothing"):
        result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=engine)
    reasons = {entry["reason"] for entry in result.history.records[0]["dropped"]}
    assert reasons == {"sent an update of the shape (75, 1), but it must be (75,)"}


def test_a_client_without_examples_says_so(blobs, smooth):
    partition = fedquilt.Partition.of([range(100), [], range(100, 240)])
    result = fedquilt.train(smooth, blobs, partition, fedquilt.fed_avg(**EVERYONE), rounds=1, engine=fedquilt.inline())
    assert result.history.records[0]["dropped"] == [{"client": 1, "kind": "no examples", "reason": "holds no examples"}]


def huge(examples):
    return 1e308


def test_weights_beyond_all_measure_are_an_error(blobs, unbalanced, smooth):
    method = replace(fedquilt.fed_avg(**EVERYONE), weigh=huge)
    with pytest.raises(OverflowInSumError, match="add up to inf"):
        fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline())


def test_the_server_keeps_no_updates_in_memory(federate, unbalanced):
    """`merge` must let go of every delta once it is folded: they would add up to cohort × model."""
    federation = federate(fedquilt.fed_avg(**EVERYONE))
    state = initial_state(federation.algorithm, federation.initial)
    planned = plan(federation.algorithm, Group(state), federation.population, 1)
    alive = []

    def results():
        with fedquilt.inline().open(federation) as session:
            for update in session.run(planned, state, ClientStore()):
                alive.append(weakref.ref(update.delta))
                yield update
                del update
                assert sum(ref() is not None for ref in alive) <= 1

    merge(federation.algorithm, federation.layout, state, planned, results())
    assert len(alive) == 6


def test_too_few_classes_in_the_model_is_refused_before_round_1(blobs, unbalanced):
    with pytest.raises(fedquilt.FedquiltError, match="does not fit the data set blobs"):
        fedquilt.train(nn.Linear(5, 3), blobs, unbalanced, fedquilt.fed_avg(), rounds=1, engine=fedquilt.inline())


def test_a_partition_of_other_data_is_refused(blobs, smooth):
    partition = fedquilt.iid(np.zeros(500, dtype=np.int64), clients=5)
    with pytest.raises(fedquilt.FedquiltError, match="has only 240 training examples"):
        fedquilt.train(smooth, blobs, partition, fedquilt.fed_avg(), rounds=1, engine=fedquilt.inline())
