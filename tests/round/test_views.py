"""Server and sites apart: each works with its own view of a run, and the model is that of the simulation to the bit.

Everything in between is real: tasks and replies as bytes, `perform` in a process that has one client's examples, and the
scheduler, which gives each lane the tasks of the clients that it hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_engine import SmallWorkers
from torch import nn

import fedquilt
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.state import RunState
from fedquilt.algorithm.updates import BlockUpdate, Fault
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.pinned import pinned
from fedquilt.data.data import Data
from fedquilt.engines.encoding import ProtocolError
from fedquilt.engines.execution import Execution
from fedquilt.engines.perform import perform
from fedquilt.engines.session import ScheduledSession
from fedquilt.engines.tasks import Task
from fedquilt.experiment.fingerprint import digest
from fedquilt.partition.partition import Partition
from fedquilt.partition.population import Population
from fedquilt.round.apart import make_server, make_site
from fedquilt.round.evaluation import no_rows
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Record
from fedquilt.round.server import Server
from fedquilt.round.site import Site
from fedquilt.simulate.simulation import NOTHING, Simulation

BASE = fedquilt.fed_avg(fraction=0.5, batch=8)
CASES: dict[str, tuple[Algorithm, Simulation]] = {
    "fed_avg": (BASE, NOTHING),
    "scaffold": (fedquilt.scaffold(BASE), NOTHING),
    "fed_ir": (fedquilt.fed_ir(BASE), NOTHING),
    "fed_avg_r": (fedquilt.fed_avg_r(BASE), NOTHING),
    "server_training": (fedquilt.server_training(BASE, share=0.2), NOTHING),
    "fine_tuned": (fedquilt.fine_tuned(BASE, holdout=0.3), NOTHING),
    "own_test": (fedquilt.own_test(BASE, holdout=0.0), NOTHING),
    "fl_hc": (fedquilt.fl_hc(BASE, rounds=1), NOTHING),
    "corrupt": (BASE, fedquilt.corrupt(share=0.5, kind="label_flip")),
    "availability": (BASE, fedquilt.availability(period=4)),
}
TESTED = ("fed_avg", "fine_tuned", "own_test", "fl_hc")
"""Those in which it matters what clients are tested on."""


def partition(kind: str, blobs: Data, unbalanced: Partition) -> Partition:
    """Return a partition in which each client's examples are in the order of the data set."""
    labels = blobs.train.y.numpy()
    if kind == "held":
        held = unbalanced
    elif kind == "own tests":
        held = fedquilt.dirichlet(labels, clients=6, alpha=1.0, own_test=True, data=blobs)
    else:
        held = fedquilt.feature_skew(labels, clients=5, sigma=0.5, own_test=True, data=blobs)
    rows = [np.sort(held.client(client)) for client in range(len(held))]
    return held.holding(np.concatenate(rows), held.sizes)


Views = tuple[Server, list[Site]]


def taken_apart(federation: Federation, module: nn.Module, method: Algorithm, simulation: Simulation) -> Views:
    """Return the views of a simulation's federation."""
    clients = range(len(federation.partition))
    return federation.server, [federation.site.only([client]) for client in clients]


def made_apart(federation: Federation, module: nn.Module, method: Algorithm, simulation: Simulation) -> Views:
    """Make the views anew: the server from sizes, and each site from one client's examples."""
    data, held, tests = federation.data, federation.partition, federation.tests
    of_server = replace(data, train=data.train.only(federation.server_rows))
    rows = [held.client(client) for client in range(len(held))]
    separate = held.test is not None
    if tests is not None and not separate and method.per_client.share:  # as before any were held out
        rows = [np.sort(np.concatenate([train, tests.held.client(client)])) for client, train in enumerate(rows)]
    test_sizes = tests.held.sizes if tests is not None and separate else None
    sizes, names = [len(each) for each in rows], [f"site {client}" for client in range(len(rows))]
    server = make_server(module, of_server, sizes, method, 1, names, test_sizes, simulation=simulation)
    sites = []
    for client, own in enumerate(rows):
        tested = tests.held.client(client) if tests is not None and separate else no_rows()
        test = tests.split.only(tested) if tests is not None and separate else data.test.only(no_rows())
        alone = replace(data, train=data.train.only(own), test=test)
        own_tests = {client: range(len(tested))} if separate and tests is not None else None
        of_client = {client: range(len(own))}
        sites.append(make_site(module, alone, of_client, method, 1, server.agreement, own_tests, simulation=simulation))
    uploads = {client: upload for site in sites for client, upload in site.first_uploads().items()}
    counts = {client: count for site in sites for client, count in site.class_counts().items()}
    needed = simulation.needs_classes or any(exchange.needs_classes for exchange in method.exchanges)
    return server.with_first_uploads(uploads, counts if needed else None), sites


def run_apart(server: Server, sites: list[Site]) -> tuple[RunState, Record]:
    """Run three rounds, with a process for every site."""
    hosts = [(site, None, {client}) for client, site in enumerate(sites)]
    with pinned(), closing(SmallWorkers(hosts)) as workers:
        session = ScheduledSession.on(workers, server, Execution(), evaluates_here=True)
        *_, (run, record) = rounds(server, session, server.start(), 3)
    return run, record


@pytest.mark.parametrize(
    ("case", "kind", "views"),
    [(case, "held", views) for case in CASES for views in (made_apart, taken_apart)]
    + [(case, kind, made_apart) for case in TESTED for kind in ("own tests", "noise")],
)
def test_server_and_sites_apart_give_the_bits_of_the_simulation(
    case: str, kind: str, views: Callable[..., Views], blobs: Data, unbalanced: Partition, smooth: nn.Module
) -> None:
    held = partition(kind, blobs, unbalanced)
    method, simulation = CASES[case]
    simulated = fedquilt.train(
        smooth, blobs, held, method, rounds=3, seed=1, engine=fedquilt.inline(), simulate=[simulation]
    )
    federation = Federation.of(smooth, blobs, held, method, 1, simulation=simulation)
    server, sites = views(federation, smooth, method, simulation)
    for client, site in enumerate(sites):
        assert site.partition.sizes.tolist() == [
            size * (k == client) for k, size in enumerate(federation.partition.sizes)
        ]
        assert not len(site.data.test) or views is made_apart
    assert len(server.data.train) == len(federation.server_rows)
    run, record = run_apart(server, sites)
    assert digest(federation, run) == simulated.digest
    last = simulated.history.records[-1]
    assert {**record, "seconds": 0} == {**last, "seconds": 0}
    assert not record["dropped"]


class Normalised(nn.Module):
    """Batch normalisation after a convolution: it needs two examples, and runs with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.out = nn.Conv2d(1, 4, 2), nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.norm(self.convolution(x.reshape(-1, 1, 2, 4)).relu().mean(dim=(2, 3))))
        return out


def test_sites_do_what_the_server_has_found_out_about_the_model(blobs: Data) -> None:
    """Batches of a single example are left out, and convolutions are laid out alike."""
    torch.manual_seed(0)
    module, method = Normalised(), fedquilt.fed_avg(fraction=1.0, batch=8)
    held = Partition.by_sizes(np.arange(240), np.array([9, 100, 131]))
    federation = Federation.of(module, blobs, held, method, 1)
    server, sites = made_apart(federation, module, method, NOTHING)
    assert server.agreement.two_examples
    assert server.agreement.channels_last
    assert server.agreement == federation.agreement
    run, record = run_apart(server, sites)
    with pytest.warns(RuntimeWarning, match="1 client would end each pass with a batch of one"):
        simulated = fedquilt.train(module, blobs, held, method, rounds=3, seed=1, engine=fedquilt.inline())
    assert digest(federation, run) == simulated.digest
    assert record["examples"] == 8 + 100 + 131


def held_by(view: object, seen: set[int]) -> list[torch.Tensor | np.ndarray]:
    """Return all arrays that can be reached from a view."""
    if id(view) in seen or isinstance(view, str | bytes | int | float | type(None) | type):
        return []
    seen.add(id(view))
    if isinstance(view, torch.Tensor | np.ndarray):
        return [view]
    inner = list(view.items()) if isinstance(view, dict) else list(view) if isinstance(view, list | tuple | set) else []
    inner += list(vars(view).values()) if hasattr(view, "__dict__") and not callable(view) else []
    return [array for each in inner for array in held_by(each, seen)]


def test_a_server_holds_no_labels_or_rows_of_clients(blobs: Data, unbalanced: Partition, smooth: nn.Module) -> None:
    """Of 240 training examples there is nothing as long, but with availability counts by client and class."""
    for case in ("fed_avg", "fed_ir", "availability"):
        method, simulation = CASES[case]
        server = Federation.of(smooth, blobs, unbalanced, method, 1, simulation=simulation).server
        arrays = held_by(server, set())
        assert any(len(array) == 90 for array in arrays if array.ndim), "the test set is there"
        assert not any(array.shape[:1] == (240,) for array in arrays)
        assert (server.population.counted is not None) == (case == "availability")


def test_a_site_of_several_clients_trains_them_in_blocks(federate: Callable[..., Federation]) -> None:
    federation = federate(BASE)
    state, chosen = federation.start().groups[0].state, [1, 3]
    task = Task("train", 1, chosen, [0, 1], [None, None], block=2)
    execution, sent = Execution(block=2), []
    with pinned():
        for site in (federation.site, federation.site.only(chosen)):
            (block,) = perform(site, execution.program(site), task, state).results
            assert isinstance(block, BlockUpdate)
            sent.append(block.values.vector)
    assert sent[0].equal(sent[1])


def test_a_site_says_what_it_cannot_do(federate: Callable[..., Federation]) -> None:
    federation = federate(BASE)
    site, state = federation.site.only([2]), federation.start().groups[0].state
    with pinned():
        reply = perform(site, None, Task("evaluate", rows=(0, 90)), state)
        assert reply.error == "FedquiltError: rows 0 to 90 of the test set are not here: 0 examples are"
        (fault,) = perform(site, None, Task("train", 1, [3], [0], [None]), state).results
        assert isinstance(fault, Fault)
        assert (fault.client, fault.kind) == (3, "no examples")
        with pytest.raises(ProtocolError, match="for client 6, but the run has 6"):
            perform(site, None, Task("train", 1, [6], [0], [None]), state)


def server_of(blobs: Data, module: nn.Module, method: Algorithm, names: list[str] | None = None) -> Server:
    data = replace(blobs, train=blobs.train.only(no_rows()))
    return make_server(module, data, [20, 0, 30], method, 1, names)


def test_a_server_says_what_it_cannot_do(blobs: Data, smooth: nn.Module) -> None:
    waiting = server_of(blobs, smooth, fedquilt.fed_avg_r(BASE), names=["Bern", "Oslo", "Rome"])
    with pytest.raises(FedquiltError, match="fed_avg_r makes the first broadcast from what every client uploads"):
        waiting.start()
    upload = {"fed_avg_r": {"mean": torch.zeros(6), "scale": torch.ones(6)}}
    with pytest.raises(FedquiltError, match="fed_avg_r lacks the first upload of Rome"):
        waiting.with_first_uploads({0: upload})
    with pytest.raises(FedquiltError, match="the first upload of Rome has another form"):
        waiting.with_first_uploads({0: upload, 2: {"fed_avg_r": {"mean": torch.zeros(5), "scale": torch.ones(6)}}})
    with pytest.raises(FedquiltError, match="of Bern has values that are not finite"):
        waiting.with_first_uploads({0: {"fed_avg_r": {"mean": torch.full((6,), torch.nan)}}, 2: upload})
    assert waiting.with_first_uploads({0: upload, 2: upload}).start().round == 0
    with pytest.raises(FedquiltError, match="fed_ir makes the first broadcast"):
        server_of(blobs, smooth, fedquilt.fed_ir(BASE)).start()
    with pytest.raises(FedquiltError, match="needs them in one place"):
        server_of(blobs, smooth, fedquilt.centralised())
    with pytest.raises(FedquiltError, match="has no examples to train on"):
        server_of(blobs, smooth, fedquilt.server_training(BASE, share=0.2))
    with pytest.raises(FedquiltError, match="cannot evaluate models on the train set"):
        server_of(blobs, smooth, BASE).split_size("train")


def test_availability_by_class_says_that_a_server_does_not_know_classes() -> None:
    rule = fedquilt.availability(period=4).available
    assert rule is not None
    with pytest.raises(FedquiltError, match="which classes clients hold is not known here"):
        rule(1, Population(np.array([3, 4])), 1)
