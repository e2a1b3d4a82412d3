"""A site's view of a run: the examples of the clients that it hosts, and what it does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import numpy as np

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.context import ClientBlock, ClientData, Context
from fedquilt.algorithm.exchange import Visit
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.parts.sampling import leaves_out_single
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.updates import Answer, ClientUpdate, Fault
from fedquilt.base.errors import naming_part, reason_of
from fedquilt.base.rng import torch_seeded
from fedquilt.base.types import Indices
from fedquilt.compute.interrupts import TooSlowError, time_limit
from fedquilt.compute.layout import Layout, ModelState, State, Tensors
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, Split
from fedquilt.partition.partition import Partition
from fedquilt.partition.population import require_one_label
from fedquilt.round.agreement import Agreement
from fedquilt.round.block import BlockProgram, block_update
from fedquilt.round.client import client_update
from fedquilt.round.evaluation import Counted, Evaluator, added, chunks, no_rows
from fedquilt.round.hosting import alone, passes, too_slow
from fedquilt.round.per_client import personal_model
from fedquilt.round.training import ClientError
from fedquilt.simulate.simulation import Simulation

T = TypeVar("T")

Row = tuple[int, int | None, "State | None"]
"""A client of a block: its number, its slot and what it keeps. One that was left out has no slot."""

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

    `partition` numbers the clients as the whole run does; those of other sites hold nothing here. `validation_rows` are
    examples that nobody trains on, to choose models by: there are some only where the examples of all clients are.
    """

    replica: Replica
    initial: ModelState
    algorithm: Algorithm
    agreement: Agreement
    seed: int
    data: Data
    partition: Partition
    tests: ClientTests | None
    validation_rows: Indices
    metrics: tuple[Metric, ...]
    simulation: Simulation
    client_seconds: float | None

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates models on what the site holds."""
        return Evaluator(self.replica, self.algorithm.loss, self.data, self.metrics, self.seed, self.validation_rows)

    @property
    def layout(self) -> Layout:
        """What stands where in the model's vector."""
        return self.replica.layout

    def first_uploads(self) -> dict[int, dict[str, Tensors]]:
        """Return what clients upload before the first round, for the first broadcasts that are made from that."""
        asking = [exchange for exchange in self.algorithm.exchanges if exchange.first_upload is not None]
        if not asking:
            return {}
        found: dict[int, dict[str, Tensors]] = {}
        for client in np.flatnonzero(self.partition.sizes).tolist():
            context = Context(self.replica, self.initial, self.seed, round=0, client=client, slot=client)
            visit = Visit(context, self._data_of(client), {}, None)
            found[client] = {}
            for exchange in asking:
                assert exchange.first_upload is not None
                with naming_part(exchange.name):
                    found[client][exchange.name] = exchange.first_upload(visit)
        return found

    def class_counts(self) -> dict[int, Indices]:
        """Return the examples of every class that each client here holds, for a server that asks for them."""
        labels, classes = self.data.train.y.numpy(), self.data.classes
        require_one_label(labels, classes)
        hosted = np.flatnonzero(self.partition.sizes).tolist()
        return {client: np.bincount(labels[self.partition.client(client)], minlength=classes) for client in hosted}

    def run_client(
        self, state: ServerState, round_: int, client: int, slot: int, client_state: State | None
    ) -> ClientUpdate | Fault:
        """Run one client's update on a server's model and broadcast; whatever goes wrong becomes its fault."""
        data = self._data_of(client)
        if not len(data):
            return Fault(client, slot, NOTHING, kind="no examples")
        if len(data) == 1 and leaves_out_single(self.algorithm.sample):
            return Fault(client, slot, SINGLE, kind="no examples")
        context = self.context(state, round_, client, slot, client_state)
        return self._or_fault(client, slot, partial(client_update, self.algorithm, context, data))

    def _or_fault(self, client: int, slot: int, work: Callable[[], T]) -> T | Fault:
        """Do one client's work; whatever goes wrong becomes its fault, and what it changes is put back."""
        try:
            with alone([client], self.replica), time_limit(self.client_seconds):
                return work()
        except TooSlowError:
            return Fault(client, slot, too_slow(self.client_seconds), kind="too slow")
        except ClientError as error:
            return Fault(client, slot, str(error))
        except BaseException as error:
            if passes(error):
                raise
            return Fault(client, slot, reason_of(error))

    def run_block(
        self,
        program: BlockProgram,
        state: ServerState,
        round_: int,
        clients: Sequence[int],
        slots: Sequence[int],
        client_state: Sequence[State | None],
        gone: Sequence[tuple[int, int]] = (),
    ) -> list[Answer]:
        """Run a block of clients as one program; if that fails, find out with whom, and run it again without them.

        The others get the same bits whoever fails. These depend on how many clients a block has, and of which sizes: in
        the place of one that is left out, a stand-in is trained. `gone` are clients that were left out before, each after
        the place that it had in the block.
        """
        rows: list[Row] = list(zip(clients, slots, client_state, strict=True))
        for index, client in sorted(gone):
            rows.insert(index, (client, None, None))
        sizes = self.partition.sizes_of([client for client, _, _ in rows]).tolist()
        held = [row for row, size in zip(rows, sizes, strict=True) if size]
        faults = [
            Fault(client, slot, NOTHING, kind="no examples")
            for (client, slot, _), size in zip(rows, sizes, strict=True)
            if slot is not None and not size
        ]
        results = self._block_or_error(program, state, round_, held)
        if isinstance(results, BaseException):
            error = results
            singly = [self.run_client(state, round_, *row) for row in _taking_part(held)]
            guilty = {result.slot: result for result in singly if isinstance(result, Fault)}
            faults += guilty.values()
            held = [
                (client, None, None) if slot in guilty else (client, slot, client_state)
                for client, slot, client_state in held
            ]
            if guilty or isinstance(error, TooSlowError):
                results = self._block_or_error(program, state, round_, held)
        if isinstance(results, BaseException):
            error = results
            results = [self._fault_of_program(client, slot, error) for client, slot, _ in _taking_part(held)]
        return [*results, *faults]

    def _block_or_error(
        self, program: BlockProgram, state: ServerState, round_: int, rows: Sequence[Row]
    ) -> Sequence[Answer] | BaseException:
        """Train a block, if any of its clients takes part; return what is raised in clients' code."""
        present = [client for client, _, _ in _taking_part(rows)]
        if not present:
            return []
        seconds = None if self.client_seconds is None else self.client_seconds * len(rows)
        try:
            with alone(present, self.replica), time_limit(seconds):
                return self.train_block(program, state, round_, rows)
        except BaseException as error:
            if passes(error):
                raise
            return error

    def _fault_of_program(self, client: int, slot: int, error: BaseException) -> Fault:
        """Leave out a client that does nothing wrong by itself: its block takes too long, or the program fails."""
        if isinstance(error, TooSlowError):
            return Fault(client, slot, too_slow(self.client_seconds), kind="too slow")
        return Fault(client, slot, f"cannot be trained in a block: {reason_of(error)}")

    def train_block(
        self, program: BlockProgram, state: ServerState, round_: int, rows: Sequence[Row]
    ) -> Sequence[Answer]:
        """Train a block of clients, all of whom hold data, as one program; those without a slot have stand-ins."""
        present = _taking_part(rows)
        clients = [client for client, _, _ in present]
        block = ClientBlock(
            clients=clients,
            slots=[slot for _, slot, _ in present],
            sizes=self.partition.sizes_of(clients).tolist(),
            context_of=lambda place: self.context(state, round_, *present[place]),
            data_of=lambda place: self._data_of(clients[place]),
            rows_of=lambda: self.partition.of_clients(clients),
            corrupt=bool(self.simulation.corruption),
        )
        sizes = {row: self.partition.size(client) for row, (client, slot, _) in enumerate(rows) if slot is None}
        return block_update(program, self.algorithm, block, sizes)

    def evaluate_clients(
        self, state: ServerState, round_: int, client: int, client_state: State | None
    ) -> Counted | Fault:
        """Test the model that a client would use on the client's data; whatever goes wrong becomes its fault."""
        context = self.context(state, round_, client, client, client_state)
        return self._or_fault(client, client, partial(self._counted_at_client, context))

    def _counted_at_client(self, context: Context) -> Counted:
        assert self.tests is not None
        model = personal_model(self.algorithm, context, self._data_of(context.client))
        rows = self.tests.held.client(context.client)
        with torch_seeded(self.seed, "evaluate own", context.client):
            cut = [rows[first:last] for first, last in chunks(len(rows), self.data.predictions)]
            return added([self.evaluator.count(model, self.tests.split, part) for part in cut])

    def context(self, state: ServerState, round_: int, client: int, slot: int, client_state: State | None) -> Context:
        """Return what a client is given for a round."""
        return Context(
            replica=self.replica,
            start=state.model,
            seed=self.seed,
            round=round_,
            client=client,
            slot=slot,
            client_state=client_state or {},
            broadcast=state.broadcast,
            tamper=self.simulation.tamper_of(client, len(self.partition), self.seed, (round_, client, slot)),
        )

    def _data_of(self, client: int) -> ClientData:
        relabel = self.simulation.relabel_of(client, len(self.partition), self.seed)
        return ClientData(self.data, self.data.train, self.partition.client(client), relabel)

    def only(self, clients: Sequence[int]) -> Site:
        """Return the site that hosts these clients alone: it holds their examples and no others."""
        partition, rows = self.partition.only(clients)
        data = replace(self.data, train=self.data.train.only(rows), test=self.data.test.only(rows[:0]))
        tests = self.tests and self.tests.only(clients)
        return replace(self, data=data, partition=partition, tests=tests, validation_rows=no_rows())


def _taking_part(rows: Iterable[Row]) -> list[tuple[int, int, State | None]]:
    """Return the clients of a block that were not left out."""
    return [(client, slot, client_state) for client, slot, client_state in rows if slot is not None]
