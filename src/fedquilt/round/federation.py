"""A federation: all that stays the same over a run's rounds. In simulation it is server and sites at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import nn

from fedquilt.algorithm.algorithm import Algorithm, check_consistent
from fedquilt.algorithm.exchange import Setting
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.parts.sampling import Epochs
from fedquilt.algorithm.parts.selection import require_enough_clients
from fedquilt.algorithm.state import RunState
from fedquilt.base.errors import naming_part
from fedquilt.base.replaced import replaced
from fedquilt.base.types import Indices
from fedquilt.compute.device import Placement
from fedquilt.compute.layout import Layout, ModelState, State
from fedquilt.compute.pinned import pinned
from fedquilt.compute.replica import Replica, copied
from fedquilt.data.data import Data, require_sound
from fedquilt.partition.partition import Partition
from fedquilt.partition.population import Population
from fedquilt.round.assemble import (
    divided,
    first_broadcast,
    measured,
    require_labels_to_flip,
    require_trained_classifier,
)
from fedquilt.round.evaluation import Evaluator, no_rows
from fedquilt.round.rehearsal import Rehearsal
from fedquilt.round.server import NO_BROADCAST, FirstBroadcast, Server
from fedquilt.round.site import ClientTests, Site
from fedquilt.round.validation import Validation
from fedquilt.simulate.simulation import NOTHING as NO_SIMULATION
from fedquilt.simulate.simulation import Simulation


@dataclass(frozen=True, eq=False, kw_only=True)
class Federation:
    """Everything that stays the same over a run's rounds.

    `server` is the server's view of it and `site` that of whoever hosts clients; a process that has only one of them needs
    nothing else. `given` is the partition before any examples were taken from clients: `server_rows` are those that the
    server keeps to itself, `validation_rows` those that are held out to choose models by, `tests` those that clients are
    tested on by themselves. `metrics` are measured besides the loss.
    `client_seconds` is how long a client may take, by the clock, before it is left out of the round.
    """

    replica: Replica
    initial: ModelState
    algorithm: Algorithm
    seed: int
    data: Data
    given: Partition
    partition: Partition
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
        module = copied(module)
        replica = Replica(module, Layout.of(module))
        require_trained_classifier(module, algorithm)
        with naming_part("run"):
            chosen = measured(metrics, data)
        federation = cls(
            replica=replica,
            initial=replica.read(),
            algorithm=algorithm,
            seed=seed,
            data=data,
            given=partition,
            partition=held,
            server_rows=server_rows,
            validation_rows=validation_rows,
            tests=tests,
            metrics=chosen,
            simulation=simulation,
            client_seconds=client_seconds,
        )
        with pinned():
            return federation._rehearsed()

    def _rehearsed(self) -> Federation:
        """Try the model out, and return the federation with what depends on that decided."""
        self.replica.put_channels_last(True)
        if not self.rehearsal.runs():
            self.replica.put_channels_last(False)
        self.rehearsal.rehearse()
        algorithm = self.algorithm
        if self.rehearsal.needs_two_examples():
            algorithm = replaced(algorithm, Epochs, Epochs.without_single)
        setting = Setting(self.data, self.partition, self.server_rows, self.replica, self.initial)
        return replace(self, algorithm=algorithm, first=first_broadcast(algorithm, setting))

    @cached_property
    def server(self) -> Server:
        """What the server knows; of the training data, its own rows alone."""
        return Server(
            replica=self.replica,
            initial=self.initial,
            algorithm=self.algorithm,
            seed=self.seed,
            data=replace(self.data, train=self.data.train.only(self.server_rows)),
            population=self.population,
            test_sizes=None if self.tests is None else self.tests.held.sizes,
            first=self.first,
            metrics=self.metrics,
            simulation=self.simulation,
        )

    @cached_property
    def site(self) -> Site:
        """The site of all clients; `site.only(clients)` is one that has these clients' examples and no others."""
        return Site(
            replica=self.replica,
            algorithm=self.algorithm,
            seed=self.seed,
            data=self.data,
            partition=self.partition,
            tests=self.tests,
            metrics=self.metrics,
            simulation=self.simulation,
            client_seconds=self.client_seconds,
        )

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates models on the whole data set."""
        return Evaluator(self.replica, self.algorithm.loss, self.data, self.metrics, self.seed, self.validation_rows)

    @cached_property
    def rehearsal(self) -> Rehearsal:
        """Tries the model out on a few examples."""
        return Rehearsal(self.replica, self.initial, self.algorithm, self.data, self.seed, self.evaluator)

    @cached_property
    def population(self) -> Population:
        """What planning may know of all clients."""
        return Population.of(self.partition, self.data.train.y.numpy(), self.data.classes)

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

    def placed(self, place: Placement) -> Federation:
        """Return the federation with its model elsewhere, or itself if it is there already."""
        replica = self.replica.placed(place)
        return self if replica is self.replica else replace(self, replica=replica)

    def apart(self) -> Federation:
        """Return the federation with a model that no other process works on."""
        return replace(self, replica=self.replica.apart())

    def with_kernels(self) -> Federation:
        """Return the federation with a model whose layers are computed by kernels."""
        changed = replace(self, replica=self.replica.with_kernels(channels_last=True))
        if changed.rehearsal.runs():
            return changed
        return replace(self, replica=self.replica.with_kernels(channels_last=False))
