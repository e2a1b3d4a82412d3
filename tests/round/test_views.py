"""Server and sites apart: each works with its own view of a run, and the model is that of the simulation to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from torch import nn

import fedquilt
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.state import ClientStore, ServerState
from fedquilt.algorithm.updates import Answer, BlockUpdate
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.layout import ModelState
from fedquilt.compute.pinned import pinned
from fedquilt.data.data import Data
from fedquilt.engines.execution import Execution
from fedquilt.experiment.fingerprint import digest
from fedquilt.partition.partition import Partition
from fedquilt.partition.population import Population
from fedquilt.round.evaluation import Evaluation, Evaluator, SplitName, chunks, combine
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.plan import Plan
from fedquilt.round.session import Measured, Pending
from fedquilt.round.site import Site
from fedquilt.simulate.simulation import NOTHING, Simulation

BASE = fedquilt.fed_avg(fraction=0.5, batch=8)
CASES: dict[str, tuple[Algorithm, Simulation]] = {
    "fed_avg": (BASE, NOTHING),
    "scaffold": (fedquilt.scaffold(BASE), NOTHING),
    "fed_ir": (fedquilt.fed_ir(BASE), NOTHING),
    "server_training": (fedquilt.server_training(BASE, share=0.2), NOTHING),
    "fine_tuned": (fedquilt.fine_tuned(BASE, holdout=0.3), NOTHING),
    "own_test": (fedquilt.own_test(BASE, holdout=0.0), NOTHING),
    "fl_hc": (fedquilt.fl_hc(BASE, rounds=1), NOTHING),
    "corrupt": (BASE, fedquilt.corrupt(share=0.5, kind="label_flip")),
    "availability": (BASE, fedquilt.availability(period=4)),
}


@dataclass(frozen=True)
class Apart:
    """A session whose clients are each at a site of their own. What the server evaluates, it evaluates itself."""

    sites: Sequence[Site]
    evaluator: Evaluator

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        for slot in reversed(planned.slots):
            client = planned.client_of[slot]
            yield self.sites[client].run_client(state, planned.round, client, slot, store.get(client))

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        parts = [self.evaluator.evaluate(model, split, rows) for rows in chunks(len(self.evaluator.split(split)))]
        return lambda: combine(parts, self.evaluator.metrics)

    def evaluate_clients(
        self, state: ServerState, clients: Sequence[int], store: ClientStore
    ) -> Pending[list[Measured]]:
        found = [self.sites[k].evaluate_clients(state, state.round, k, store.get(k)) for k in clients]
        return lambda: found


@pytest.fixture(params=["held", "own tests", "noise"])
def held(request: pytest.FixtureRequest, blobs: Data, unbalanced: Partition) -> Partition:
    labels = blobs.train.y.numpy()
    if request.param == "held":
        return unbalanced
    if request.param == "own tests":
        return fedquilt.dirichlet(labels, clients=6, alpha=1.0, own_test=True, data=blobs)
    return fedquilt.feature_skew(labels, clients=5, sigma=0.5, own_test=True, data=blobs)


@pytest.mark.parametrize("case", CASES)
def test_server_and_sites_apart_give_the_bits_of_the_simulation(
    case: str, blobs: Data, held: Partition, smooth: nn.Module
) -> None:
    method, simulation = CASES[case]
    simulated = fedquilt.train(
        smooth, blobs, held, method, rounds=3, seed=1, engine=fedquilt.inline(), simulate=[simulation]
    )
    federation = Federation.of(smooth, blobs, held, method, 1, simulation=simulation)
    server, sites = federation.server, [federation.site.only([client]) for client in range(len(held))]
    assert [len(site.data.train) for site in sites] == federation.partition.sizes.tolist()
    assert len(server.data.train) == len(federation.server_rows)
    with pinned():
        *_, (run, record) = rounds(server, Apart(sites, server.evaluator), server.start(), 3)
    assert digest(federation, run) == simulated.digest
    last = simulated.history.records[-1]
    assert {**record, "seconds": 0} == {**last, "seconds": 0}
    assert not record["dropped"]


def test_a_site_of_several_clients_trains_them_in_blocks(
    blobs: Data, unbalanced: Partition, smooth: nn.Module, federate: Callable[..., Federation]
) -> None:
    federation = federate(BASE)
    state, chosen = federation.start().groups[0].state, [1, 3]
    with pinned():
        program = Execution(block=2).program(federation)
        assert program is not None
        sent = [
            site.run_block(program, state, 1, chosen, [0, 1], [None, None])[0]
            for site in (federation.site, federation.site.only(chosen))
        ]
    whole, only = sent
    assert isinstance(whole, BlockUpdate)
    assert isinstance(only, BlockUpdate)
    assert whole.values.vector.equal(only.values.vector)


def test_availability_by_class_says_that_a_real_server_does_not_know_classes() -> None:
    rule = fedquilt.availability(period=4).available
    assert rule is not None
    with pytest.raises(FedquiltError, match="known in simulation only"):
        rule(1, Population(np.array([3, 4])), 1)
