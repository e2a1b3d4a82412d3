"""The server's view of a run: what plan, merge, evaluation and the loop over rounds use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fedquilt.algorithm.algorithm import Algorithm, initial_state
from fedquilt.algorithm.exchange import InitialFederation
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.state import RunState
from fedquilt.base.errors import FedquiltError
from fedquilt.base.types import Indices
from fedquilt.compute.layout import Layout, ModelState
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data
from fedquilt.partition.population import ClassesHeld, Population
from fedquilt.round.agreement import Agreement
from fedquilt.round.evaluation import Evaluator, SplitName
from fedquilt.round.first_broadcast import (
    FirstBroadcast,
    FirstUploads,
    first_broadcast,
    require_usable,
    waits_for_clients,
)
from fedquilt.simulate.simulation import Simulation


@dataclass(frozen=True, eq=False, kw_only=True)
class Server:
    """What a server knows of a run: of clients their sizes and names, and their class counts if a simulation asks for them.

    `data` has the test set and, to train on, the server's own examples alone. `agreement` is what sites have to be told.
    `test_sizes` is how many test examples of its own each client has (None: clients are not tested by themselves),
    `split_sizes` how many examples there are to evaluate models on. `known_first` is the first broadcast, once it is known.
    `client_seconds` is how long a client may take before it is left out.
    """

    replica: Replica
    initial: ModelState
    algorithm: Algorithm
    agreement: Agreement
    seed: int
    data: Data
    population: Population
    test_sizes: Indices | None
    split_sizes: Mapping[SplitName, int]
    known_first: FirstBroadcast | None
    metrics: tuple[Metric, ...]
    simulation: Simulation
    client_seconds: float | None

    @property
    def server(self) -> Server:
        """The server's view: this one. What needs no more of a federation takes either."""
        return self

    @property
    def first(self) -> FirstBroadcast:
        """What the server sends before the first round besides the model."""
        if self.known_first is None:
            names = " and ".join(waits_for_clients(self.algorithm))
            raise FedquiltError(
                f"{names} makes the first broadcast from what every client uploads: collect what the sites' "
                "`first_uploads` and `class_counts` return, and go on with `server.with_first_uploads(…)`"
            )
        return self.known_first

    def with_first_uploads(self, uploads: FirstUploads, class_counts: Mapping[int, Indices] | None = None) -> Server:
        """Return the server that has made its first broadcast from what all clients uploaded for it.

        `class_counts` are the examples of every class by client, which some exchanges and simulations ask for.
        """
        population = self.population
        if class_counts is not None:
            counted = ClassesHeld.reported(class_counts, len(population), self.data.classes)
            population = replace(population, counted=counted)
        require_usable(self.algorithm, uploads, population)
        initial = InitialFederation(self.data, population, self.replica, self.initial)
        kept = population if self.simulation.needs_classes else self.population
        return replace(self, population=kept, known_first=first_broadcast(self.algorithm, initial, uploads))

    def split_size(self, name: SplitName) -> int:
        """Return how many examples a split has, or refuse one that is only there where clients' examples are."""
        if name not in self.split_sizes:
            raise FedquiltError(f"a server that has no client's examples cannot evaluate models on the {name} set")
        return self.split_sizes[name]

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates models on what the server has."""
        return Evaluator(self.replica, self.algorithm.loss, self.data, self.metrics, self.seed)

    @property
    def layout(self) -> Layout:
        """What stands where in the model's vector."""
        return self.replica.layout

    def start(self) -> RunState:
        """Return the state of a run before its first round."""
        return RunState.of(initial_state(self.algorithm, self.initial, self.first.broadcast))
