"""What every engine keeps: the same bits, results that are good until the next is asked for, and faults that stay with one.

Engines are those that are registered, and a small one that is complete in under 100 lines (`small_engine.py`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small_engine
import torch
from small_engine import SmallEngine
from torch import nn

import fedquilt
from fedquilt.algorithm.state import ClientStore
from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, Fault, one_by_one
from fedquilt.base.registry import engines
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.stack import KERNEL
from fedquilt.engines.execution import Execution
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures
from fedquilt.round.plan import plan

HOSTILE, HONEST = 3, 1
"""The largest client is honest, and shares a block with the other."""

ARGUMENTS = {"processes": {"workers": 2}, "vectorised": {"workers": 2, "block": 2}}
ELSEWHERE = ("flower", "ray")
"""Engines whose workers are not started here: tests/experiment/deployment, tests/engines/ray_cluster.py."""

ENGINES: dict[str, Callable[[], Any]] = {
    name: partial(engines[name], **ARGUMENTS.get(name, {})) for name in engines if name not in ELSEWHERE
}
ENGINES |= {
    "small": lambda: SmallEngine(Execution()),
    "small, in blocks": lambda: SmallEngine(Execution(block=2)),
    "fused": lambda: fedquilt.vectorised(block=2, workers=2, compute="fused"),
}


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]()


@pytest.fixture
def federation(engine, federate):
    """Six clients, with a model that the engine can train."""
    if engine.execution.compute != "fused":
        return federate(method())
    if build.trouble(KERNEL) is not None:
        pytest.skip(f"nothing can be compiled here: {build.trouble(KERNEL)}")
    torch.manual_seed(0)
    return federate(method(), nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)))


def method():
    return fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8)


def first_plan(federation):
    state = federation.start().groups[0].state
    return plan(federation.algorithm, federation.start().groups[0], federation.population, 1), state


def copied(update):
    return [part.clone() for part in (update.delta, update.buffers, update.counters)]


def collected(session, federation, spoil=False):
    """Return what a plan's clients sent, by slot, and copied at once; with `spoil`, it is overwritten after that."""
    planned, state = first_plan(federation)
    found = {}
    for answer in session.run(planned, state, ClientStore()):
        for update in one_by_one([answer]):
            assert isinstance(update, ClientUpdate), update
            assert update.slot not in found
            found[update.slot] = copied(update)
            if spoil:
                for part in (update.delta, update.buffers):
                    part.fill_(float("nan"))
    return found


def test_results_are_used_up_one_at_a_time(engine, federation):
    """Whoever writes into a result that it has taken changes nobody else's: not the model, and not what is to come."""
    with engine.open(federation) as session:
        expected = collected(session, federation)
        assert len(expected) == 6
        for _ in range(2):
            found = collected(session, federation, spoil=True)
            for slot, parts in expected.items():
                assert all(torch.equal(a, b) for a, b in zip(parts, found[slot], strict=True))


def test_every_slot_is_answered_once_also_if_plans_overlap(engine, federation):
    planned, state = first_plan(federation)
    with engine.open(federation) as session:
        first, second = (session.run(planned, state, ClientStore()) for _ in range(2))
        pending = session.evaluate(state.model, "test")
        for answers in (first, second):
            slots = [update.slot for update in one_by_one(answers)]
            assert sorted(slots) == sorted(planned.slots)
        assert pending().loss > 0


class Tampering:
    """A session whose answers are changed on their way: what one client sends is something else."""

    def __init__(self, session, lie):
        self.session, self.lie = session, lie
        self.evaluate, self.evaluate_clients = session.evaluate, session.evaluate_clients

    def run(self, planned, state, store):
        slot_of = {client: slot for slot, client in planned.client_of.items()}
        # The liar is heard first, so that nobody else has answered yet.
        answers = sorted(
            map(kept, self.session.run(planned, state, store)), key=lambda answer: not about(answer, HOSTILE)
        )
        for answer in answers:
            yield from self.lie(answer, slot_of) if about(answer, HOSTILE) else [answer]


def kept(answer):
    """Copy an answer, to be used after the next one."""
    if isinstance(answer, ClientUpdate):
        delta, buffers, counters = copied(answer)
        return replace(answer, delta=delta, buffers=buffers, counters=counters)
    if isinstance(answer, BlockUpdate):
        values = answer.values
        parts = {name: getattr(values, name).clone() for name in ("vector", "buffers", "counters")}
        return replace(answer, values=replace(values, **parts))
    return answer


def about(answer, client):
    return client in (answer.clients if isinstance(answer, BlockUpdate) else [answer.client])


def saying(**said):
    """Claim something else; a function is given the slots of all clients."""

    def lie(answer, slot_of):
        for name, value in said.items():
            claimed = value(slot_of) if callable(value) else value
            if isinstance(answer, BlockUpdate):
                column = name if name == "steps" else f"{name}s"
                true = zip(answer.clients, getattr(answer, column), strict=True)
                answer = replace(answer, **{column: [claimed if who == HOSTILE else old for who, old in true]})
            else:
                answer = replace(answer, **{name: claimed})
        yield answer

    return lie


def sending(value):
    def lie(answer, slot_of):
        for update in [answer] if isinstance(answer, ClientUpdate) else answer:
            if update.client == HOSTILE:
                update.delta[0] = value
        yield answer

    return lie


def failing(answer, slot_of):
    for update in one_by_one([answer]):
        yield Fault(HOSTILE, update.slot, "broken") if update.client == HOSTILE else update


def twice(answer, slot_of):
    yield answer
    yield from (update for update in one_by_one([answer]) if update.client == HOSTILE)


LIES = {
    "an unknown slot": saying(slot=999),
    "another client's slot": saying(slot=lambda slot_of: slot_of[HONEST]),
    "a negative slot": saying(slot=-1),
    **{f"the weight {weight:g}": saying(weight=weight) for weight in (6e6, 1e12, 1e300, -60.0, 0.0, float("inf"))},
    "steps without end": saying(steps=2**70),
    **{f"the value {value:g}": sending(value) for value in (2.0**20, 1e30, float("inf"), float("nan"))},
}


def heard(session, federation, lie, last=2):
    records = list(rounds(federation.server, Tampering(session, lie), federation.start(), last, Measures()))
    (run, _) = records[-1]
    return run.groups[0].state.model.vector.clone(), [record for _, record in records]


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_lies_are_the_liars_own_fault(engine, federation):
    """It is named, the round goes on, and the others' bits are those of a round in which it fails."""
    with engine.open(federation) as session:
        expected, _ = heard(session, federation, failing)
        for name, lie in LIES.items():
            model, records = heard(session, federation, lie)
            assert torch.equal(model, expected), name
            for record in records:
                assert {fault["client"] for fault in record["dropped"]} == {HOSTILE}, name
                assert sorted(record["clients"]) == [0, 1, 2, 4, 5], name
                assert record["applied"]


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_who_answers_twice_counts_once_and_is_named(engine, federation):
    with engine.open(federation) as session:
        expected, _ = heard(session, federation, lambda answer, slot_of: [answer])
        model, records = heard(session, federation, twice)
    assert torch.equal(model, expected)
    for record in records:
        assert sorted(record["clients"]) == list(range(6))
        assert [(fault["client"], fault["kind"]) for fault in record["dropped"]] == [(HOSTILE, "unusable update")]


def test_the_small_engine_is_small():
    assert len(Path(small_engine.__file__).read_text().splitlines()) < 100


def rich():
    """A method that says a lot besides its model: control variates both ways, client state, evaluation on own data."""
    return fedquilt.own_test(fedquilt.scaffold(fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=8)), holdout=0.2)


@pytest.mark.parametrize("block", [1, 2])
def test_the_small_engine_gives_the_bits_of_the_others(block, blobs, unbalanced, smooth):
    chosen = rich() if block == 1 else method()
    known = fedquilt.inline() if block == 1 else fedquilt.vectorised(block=2)
    first, second = (
        fedquilt.train(smooth, blobs, unbalanced, chosen, rounds=3, engine=engine)
        for engine in (known, SmallEngine(Execution(block=block)))
    )
    assert first.digest == second.digest
    timeless = [[{k: v for k, v in r.items() if k != "seconds"} for r in run.history] for run in (first, second)]
    assert timeless[0] == timeless[1]


class Deadly(nn.Module):
    """Kills its process on the inputs of one client, marked by a value."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        if self.training and x.max() > 1e6:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.linear(x)


@pytest.mark.filterwarnings("ignore:small worker .* died:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_the_small_engine_has_deaths_and_blame_from_the_scheduler(blobs, unbalanced):
    x = blobs.train.x.clone()
    x[unbalanced.client(HOSTILE)[0]] = 1e7
    data = replace(blobs, train=replace(blobs.train, x=x))
    result = fedquilt.train(Deadly(), data, unbalanced, method(), rounds=1, engine=SmallEngine(Execution()))
    (fault,) = result.history.records[0]["dropped"]
    assert (fault["client"], fault["kind"]) == (HOSTILE, "died")
    assert fault["reason"].startswith("3 small workers died on it")
