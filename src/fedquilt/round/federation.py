"""A federation: all that stays the same over a run's rounds. In simulation it is server and sites at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import nn

from fedquilt.algorithm.algorithm import Algorithm, check_consistent
from fedquilt.algorithm.exchange import InitialFederation
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.parts.selection import require_enough_clients
from fedquilt.algorithm.state import RunState
from fedquilt.base.errors import naming_part
from fedquilt.base.types import Indices
from fedquilt.compute.layout import Layout, ModelState, State
from fedquilt.compute.pinned import pinned
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, require_sound
from fedquilt.partition.partition import Partition
from fedquilt.partition.population import ClassesHeld, Population
from fedquilt.round.agreement import Agreement
from fedquilt.round.assemble import divided, prepared, require_labels_to_flip
from fedquilt.round.evaluation import Evaluator, no_rows
from fedquilt.round.first_broadcast import NO_BROADCAST, FirstBroadcast, first_broadcast
from fedquilt.round.rehearsal import Rehearsal
from fedquilt.round.server import Server
from fedquilt.round.site import ClientTests, Site
from fedquilt.round.validation import Validation
from fedquilt.simulate.simulation import NOTHING as NO_SIMULATION
from fedquilt.simulate.simulation import Simulation


@dataclass(frozen=True, eq=False, kw_only=True)
class Federation:
    """Everything that stays the same over a run's rounds.

    `server` is the server's view of it and `site` that of whoever hosts clients; a process that has only one of them needs
    nothing else, and can make it without the data of the others (`round/apart.py`).

    `given` is the partition before any examples were taken from clients: `server_rows` are those that the server keeps to
    itself, `validation_rows` those that are held out to choose models by, `tests` those that clients are tested on by
    themselves. `metrics` are measured besides the loss.
    `client_seconds` is how long a client may take, by the clock, before it is left out of the round.
    """

    replica: Replica
    initial: ModelState
    algorithm: Algorithm
    agreement: Agreement
    seed: int
    data: Data
    given: Partition
    partition: Partition
    population: Population
    server_rows: Indices
    validation_rows: Indices = field(default_factory=no_rows)
    tests: ClientTests | None = None
    first: FirstBroadcast = NO_BROADCAST
    metrics: tuple[Metric, ...] = ()
    simulation: Simulation = NO_SIMULATION
    client_seconds: float | None = None

    @classmethod
    def of(
        cls,
        module: nn.Module,
        data: Data,
        partition: Partition,
        algorithm: Algorithm,
        seed: int,
        metrics: Sequence[Metric] | None = None,
        simulation: Simulation = NO_SIMULATION,
        client_seconds: float | None = None,
        validation: Validation | None = None,
    ) -> Federation:
        """Put a federation together. The module is copied: the caller's own is never changed.

        Unless `metrics` are given, it is accuracy that is measured, where the data have classes.
        """
        check_consistent(algorithm)
        with naming_part("data"):
            require_sound(data)
        data, held, server_rows, validation_rows, tests = divided(data, partition, algorithm, seed, validation)
        require_labels_to_flip(simulation, data)
        with naming_part(algorithm.name):
            require_enough_clients(algorithm.select, len(held))
        ready = prepared(module, data, algorithm, seed, metrics, held.sizes)
        counted = _counted(data, held) if simulation.needs_classes else None
        federation = cls(
            **ready._asdict(),
            seed=seed,
            data=data,
            given=partition,
            partition=held,
            population=Population(held.sizes, counted=counted),
            server_rows=server_rows,
            validation_rows=validation_rows,
            tests=tests,
            simulation=simulation,
            client_seconds=client_seconds,
        )
        with pinned():
            return replace(federation, first=federation._first_broadcast())

    def _first_broadcast(self) -> FirstBroadcast:
        """Ask all clients for their first uploads, and make the server's first broadcast."""
        population, data = self.population, self.data
        asked = any(exchange.needs_classes for exchange in self.algorithm.exchanges)
        if asked and data.classes and data.train.y.dim() == 1:  # otherwise the exchange says what is wrong
            population = replace(population, counted=_counted(data, self.partition))
        initial = InitialFederation(self.server.data, population, self.replica, self.initial)
        return first_broadcast(self.algorithm, initial, self.site.first_uploads())

    @cached_property
    def server(self) -> Server:
        """What the server knows; of the training data, its own rows alone."""
        held_out = len(self.validation_rows)
        return Server(
            replica=self.replica,
            initial=self.initial,
            algorithm=self.algorithm,
            seed=self.seed,
            data=replace(self.data, train=self.data.train.only(self.server_rows)),
            agreement=self.agreement,
            population=self.population,
            test_sizes=None if self.tests is None else self.tests.held.sizes,
            split_sizes={"test": len(self.data.test), "train": len(self.data.train) - held_out, "validation": held_out},
            known_first=self.first,
            metrics=self.metrics,
            simulation=self.simulation,
            client_seconds=self.client_seconds,
        )

    @cached_property
    def site(self) -> Site:
        """The site of all clients; `site.only(clients)` is one that has these clients' examples and no others."""
        return Site(
            replica=self.replica,
            initial=self.initial,
            algorithm=self.algorithm,
            agreement=self.agreement,
            seed=self.seed,
            data=self.data,
            partition=self.partition,
            tests=self.tests,
            validation_rows=self.validation_rows,
            metrics=self.metrics,
            simulation=self.simulation,
            client_seconds=self.client_seconds,
        )

    @property
    def evaluator(self) -> Evaluator:
        """Evaluates models on the whole data set."""
        return self.site.evaluator

    @cached_property
    def rehearsal(self) -> Rehearsal:
        """Tries the model out on a few examples."""
        return Rehearsal.of(self)

    @property
    def broadcast(self) -> State:
        """What the server sends before the first round besides the model."""
        return self.first.broadcast

    @property
    def layout(self) -> Layout:
        """What stands where in the model's vector."""
        return self.replica.layout

    def start(self) -> RunState:
        """Return the state of a run before its first round."""
        return self.server.start()


def _counted(data: Data, held: Partition) -> ClassesHeld:
    return ClassesHeld.of(held, data.train.y.numpy(), data.classes)
