"""A site's view of a run: the examples of the clients that it hosts, and what it does with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.context import ClientData, Context
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.parts.sampling import leaves_out_single
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.updates import Answer, ClientUpdate, Fault
from fedquilt.base.errors import told
from fedquilt.base.rng import torch_seeded
from fedquilt.compute.interrupts import TooSlowError, time_limit
from fedquilt.compute.layout import State
from fedquilt.compute.replica import Workbench
from fedquilt.data.data import Data, Split
from fedquilt.partition.partition import Partition
from fedquilt.round.block import Program, block_update
from fedquilt.round.client import client_update
from fedquilt.round.evaluation import Counted, Evaluator, added, chunks
from fedquilt.round.hosting import alone, passes, too_slow
from fedquilt.round.per_client import own_model
from fedquilt.round.training import ClientError
from fedquilt.simulate.simulation import Simulation

T = TypeVar("T")

NOTHING = "holds no examples"
SINGLE = "holds a single example, and the model's batch normalisation needs two or more in a batch"


class ClientTests(NamedTuple):
    """The test examples of every client: which rows each has, and of which split."""

    held: Partition
    split: Split

    def only(self, clients: Sequence[int]) -> ClientTests:
        """Return the test examples of some clients, without those of the others."""
        held, rows = self.held.only(clients)
        return ClientTests(held, self.split.only(rows))


@dataclass(frozen=True, eq=False, kw_only=True)
class Site:
    """Where clients are hosted: one of them, some, or in a simulation all.

    `partition` numbers the clients as the whole run does; those of other sites hold nothing here.
    """

    bench: Workbench
    algorithm: Algorithm
    seed: int
    data: Data
    partition: Partition
    tests: ClientTests | None
    metrics: tuple[Metric, ...]
    simulation: Simulation
    client_seconds: float | None

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates models on what the site holds."""
        return Evaluator(self.bench, self.algorithm.loss, self.data, self.metrics, self.seed)

    def run_client(
        self, state: ServerState, round_: int, client: int, slot: int, kept: State | None
    ) -> ClientUpdate | Fault:
        """Run one client's update on a server's model and announcements; whatever goes wrong becomes its fault."""
        data = self._data_of(client)
        if not len(data):
            return Fault(client, slot, NOTHING, kind="no examples")
        if len(data) == 1 and leaves_out_single(self.algorithm.sample):
            return Fault(client, slot, SINGLE, kind="no examples")
        context = self.context(state, round_, client, slot, kept)
        return self._or_fault(client, slot, partial(client_update, self.algorithm, context, data))

    def _or_fault(self, client: int, slot: int, work: Callable[[], T]) -> T | Fault:
        """Do what is one client's own; whatever goes wrong becomes its fault, and what it changes is put back."""
        try:
            with alone([client]), time_limit(self.client_seconds):
                return work()
        except TooSlowError:
            return Fault(client, slot, too_slow(self.client_seconds), kind="too slow")
        except ClientError as error:
            return Fault(client, slot, str(error))
        except BaseException as error:
            if passes(error):
                raise
            return Fault(client, slot, told(error))

    def run_block(
        self,
        program: Program,
        state: ServerState,
        round_: int,
        clients: Sequence[int],
        slots: Sequence[int],
        kept: Sequence[State | None],
    ) -> list[Answer]:
        """Run a block of clients as one program; if that fails, one by one, so that the one at fault is found."""
        each = list(zip(clients, slots, kept, strict=True))
        held = [own for own in each if self.partition.size(own[0])]
        faults = [
            Fault(client, slot, NOTHING, kind="no examples")
            for client, slot, _ in each
            if not self.partition.size(client)
        ]
        if not held:
            return [*faults]
        seconds = None if self.client_seconds is None else self.client_seconds * len(held)
        try:
            with alone([client for client, _, _ in held]), time_limit(seconds):
                return [*self.train_block(program, state, round_, held), *faults]
        except BaseException as error:
            if passes(error):
                raise
            singly = [self.run_client(state, round_, *own) for own in held]
            if not isinstance(error, TooSlowError) and not any(isinstance(result, Fault) for result in singly):
                # It is the program that failed.
                why = f"cannot be trained in a block: {told(error)}"
                return [*(Fault(client, slot, why) for client, slot, _ in held), *faults]
            return [*singly, *faults]

    def train_block(
        self, program: Program, state: ServerState, round_: int, each: Sequence[tuple[int, int, State | None]]
    ) -> Sequence[Answer]:
        """Train a block of clients, all of whom hold data, as one program; each has its slot and what it kept."""
        contexts = [self.context(state, round_, *own) for own in each]
        return block_update(program, self.algorithm, contexts, [self._data_of(client) for client, _, _ in each])

    def evaluate_own(self, state: ServerState, round_: int, client: int, kept: State | None) -> Counted | Fault:
        """Evaluate the model that a client would use on its own data; whatever goes wrong becomes its fault."""
        context = self.context(state, round_, client, client, kept)
        return self._or_fault(client, client, partial(self._counted_own, context))

    def _counted_own(self, context: Context) -> Counted:
        assert self.tests is not None
        model = own_model(self.algorithm, context, self._data_of(context.client))
        rows = self.tests.held.client(context.client)
        with torch_seeded(self.seed, "evaluate own", context.client):
            cut = [rows[first:last] for first, last in chunks(len(rows))]
            return added([self.evaluator.count(model, self.tests.split, part) for part in cut])

    def context(self, state: ServerState, round_: int, client: int, slot: int, kept: State | None) -> Context:
        """Return what a client is given for a round."""
        return Context(
            bench=self.bench,
            start=state.model,
            seed=self.seed,
            round=round_,
            client=client,
            slot=slot,
            kept=kept or {},
            announced=state.announced,
            tamper=self.simulation.tamper_of(client, len(self.partition), self.seed, (round_, client, slot)),
        )

    def _data_of(self, client: int) -> ClientData:
        relabel = self.simulation.relabel_of(client, len(self.partition), self.seed)
        return ClientData(self.data, self.data.train, self.partition.client(client), relabel)

    def only(self, clients: Sequence[int]) -> Site:
        """Return the site that hosts these clients alone: it holds their examples and no others."""
        partition, rows = self.partition.only(clients)
        data = replace(self.data, train=self.data.train.only(rows), test=self.data.test.only(rows[:0]))
        return replace(self, data=data, partition=partition, tests=self.tests and self.tests.only(clients))
