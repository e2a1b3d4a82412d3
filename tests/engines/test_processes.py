"""Workers that die are replaced, and the result is the same bits."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import active_children
from multiprocessing.process import BaseProcess

import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.state import ClientStore, Group
from fedquilt.algorithm.updates import ClientUpdate
from fedquilt.round.federation import Federation
from fedquilt.round.plan import plan


def workers() -> list[BaseProcess]:
    """The workers that are alive; torch's compiler has processes of its own, which other tests may have started."""
    return active_children()


class Slow(nn.Module):
    """Takes its time, so that a kill falls into the middle of a client."""

    def __init__(self, naps: float = 0.002):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.naps = naps

    def forward(self, x):
        if self.training:
            time.sleep(self.naps)
        return self.linear(x)


class Deadly(Slow):
    """Kills its process on the inputs of one client, marked by a value."""

    def forward(self, x):
        if self.training and x.max() > 1e6:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.linear(x)


class Killer:
    """A watcher that kills a random worker every few clients."""

    def __init__(self, every: int):
        self.every, self.count, self.killed = every, 0, 0

    def begin(self, history, last):
        pass

    def heard(self, clients, total):
        self.count += 1
        if self.count % self.every == 0:
            children = workers()
            children[self.count % len(children)].kill()
            self.killed += 1

    def round(self, record):
        pass


@pytest.mark.filterwarnings("ignore:worker process .* died:RuntimeWarning")
def test_killed_workers_cost_no_bits(blobs, unbalanced):
    torch.manual_seed(0)
    module, method = Slow(), fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=10)
    expected = fedquilt.train(module, blobs, unbalanced, method, rounds=6, engine=fedquilt.inline())
    killer = Killer(every=3)
    result = fedquilt.train(
        module, blobs, unbalanced, method, rounds=6, engine=fedquilt.processes(workers=2), watcher=killer
    )
    assert killer.killed == 12
    assert result.digest == expected.digest
    assert all(record["dropped"] == [] for record in result.history)


@pytest.mark.filterwarnings("ignore:worker process .* died:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_after_three_deaths_the_client_is_left_out_and_named(blobs, unbalanced):
    x = blobs.train.x.clone()
    x[unbalanced.client(4)[0]] = 1e7
    data = fedquilt.arrays(x.numpy(), blobs.train.y.numpy(), blobs.test.x.numpy(), blobs.test.y.numpy())
    method = fedquilt.fed_avg(fraction=1.0)
    result = fedquilt.train(Deadly(), data, unbalanced, method, rounds=2, engine=fedquilt.processes(workers=2))
    for record in result.history:
        (dropped,) = record["dropped"]
        assert (dropped["client"], dropped["kind"]) == (4, "died")
        assert dropped["reason"].startswith("3 worker processes died on it (signal SIGKILL); the system may be out of")
        assert len(record["clients"]) == 5
    assert workers() == []


def test_a_death_is_reported_as_a_warning(blobs, unbalanced):
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=10)
    with pytest.warns(RuntimeWarning, match="its work is done again"):
        fedquilt.train(
            Slow(), blobs, unbalanced, method, rounds=2, engine=fedquilt.processes(workers=2), watcher=Killer(every=4)
        )


def test_no_worker_is_left_behind(blobs, unbalanced, smooth):
    fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), rounds=1, engine=fedquilt.processes(workers=3))
    assert workers() == []


def test_spawned_workers_give_the_same_bits(blobs, unbalanced, smooth):
    """What macOS uses; its workers import torch anew, so one short run must do."""
    method = fedquilt.fed_avg_m(lr=0.1, fraction=0.5, batch=10, momentum=0.5, keep_momentum=True)
    engines = (fedquilt.inline(), fedquilt.processes(workers=2, start="spawn"))
    first, second = (fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=engine) for engine in engines)
    assert first.digest == second.digest


def test_the_largest_clients_go_first(blobs, unbalanced, smooth):
    method = fedquilt.fed_avg(fraction=1.0)
    federation = Federation.of(smooth, blobs, unbalanced, method, seed=1)
    state = initial_state(method, federation.initial)
    with fedquilt.processes(workers=1).open(federation) as session:
        planned = plan(method, Group(state), federation.population, 1)
        order = [result.client for result in session.run(planned, state, ClientStore())]
    assert order == sorted(range(6), key=lambda k: -int(unbalanced.sizes[k]))


def test_what_clients_keep_travels_to_workers_and_back(blobs, unbalanced, smooth):
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, momentum=0.9, keep_momentum=True)
    federation = Federation.of(smooth, blobs, unbalanced, method, seed=1)
    state, store = initial_state(method, federation.initial), ClientStore()
    with fedquilt.processes(workers=2).open(federation) as session:
        planned = plan(method, Group(state), federation.population, 1)
        for result in session.run(planned, state, store):
            assert isinstance(result, ClientUpdate)
            store = store.updated({result.client: result.client_state})
    kept = dict(store.items())
    assert sorted(kept) == list(range(6))
    assert set(kept[0]["optimiser"]["0"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
