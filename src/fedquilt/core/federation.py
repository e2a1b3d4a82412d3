"""A federation: model, data, who holds what, algorithm and seed. What an engine needs to run a round's clients."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import nn

from fedquilt.core.algorithm import Algorithm, Indices, check_consistent
from fedquilt.core.block import Program, block_update
from fedquilt.core.client import ClientUpdate, Fault, client_update
from fedquilt.core.context import ClientData, Context
from fedquilt.core.evaluation import Counted, added, chunks, evaluate_chunk
from fedquilt.core.exchange import Setting
from fedquilt.core.fit import ClientError
from fedquilt.core.local import EAGER, Recipe, forward
from fedquilt.core.metric import Metric
from fedquilt.core.own import hold_out, own_model
from fedquilt.core.params import Layout, ModelState
from fedquilt.core.penalty import classifier_layer
from fedquilt.core.pinned import pinned
from fedquilt.core.place import Place
from fedquilt.core.population import Population
from fedquilt.core.rng import torch_seeded
from fedquilt.core.server_data import take_share
from fedquilt.core.state import RunState, ServerState, initial_state
from fedquilt.core.transform import State
from fedquilt.core.updates import Answer
from fedquilt.core.workbench import Workbench
from fedquilt.data.data import Data, Split, require_sound, whole
from fedquilt.errors import ExampleError, FedquiltError, SpecError, naming_part, told
from fedquilt.partition.partition import Partition
from fedquilt.parts.metrics import accuracy

SplitName = Literal["train", "test"]

NOTHING = "holds no examples"


@dataclass(frozen=True, eq=False)
class Federation:
    """Everything that stays the same over a run's rounds.

    `announced` is what the server tells at first besides the model, for which clients downloaded and uploaded
    `downloaded_first` and `uploaded_first` bytes.
    `server_rows` are the examples that the server keeps to itself, `own_test` those rows of `own_split` that clients are
    tested on by themselves. `given` is the partition before any were taken. `metrics` are measured besides the loss.
    """

    bench: Workbench
    initial: ModelState
    algorithm: Algorithm
    data: Data
    partition: Partition
    seed: int
    server_rows: Indices
    own_test: Partition | None
    own_split: Split
    given: Partition
    announced: State
    uploaded_first: int
    downloaded_first: int
    metrics: tuple[Metric, ...] = ()

    @classmethod
    def of(
        cls,
        module: nn.Module,
        data: Data,
        partition: Partition,
        algorithm: Algorithm,
        seed: int,
        metrics: Sequence[Metric] | None = None,
    ) -> Federation:
        """Put a federation together. The module is copied: the caller's own is never changed.

        Unless `metrics` are given, it is accuracy that is measured, where the data have classes.
        """
        check_consistent(algorithm)
        with naming_part("data"):
            require_sound(data)
        held = partition.pooled() if algorithm.pooled else partition
        _require_rows(data, partition, "training", len(data.train))
        if not len(partition.indices):
            raise FedquiltError("the partition gives nobody an example to train on")
        if partition.noise is not None:
            data = replace(data, train=replace(data.train, noise=partition.noise))
        held, server_rows = take_share(held, data.train.y.numpy(), algorithm.server_share, seed)
        own_test, own_split = held if algorithm.own == 0 else None, data.train
        if held.test is not None:  # test examples of their own count, and nothing is held out
            _require_rows(data, held.test, "test", len(data.test))
            if len(held.test) != len(held):
                raise FedquiltError(f"the partition has {len(held)} clients, but own tests for {len(held.test)}")
            own_test, own_split = held.test, replace(data.test, noise=held.test.noise)
        elif algorithm.own:
            held, own_test = hold_out(held, algorithm.own, seed)
        flips = any(corruption.labels is not None for corruption in algorithm.corruption)
        if flips and (data.train.y.dim() > 1 or not data.classes):
            has = "sequences" if data.classes else "numbers as targets"
            raise FedquiltError(f"corrupt: labels can be flipped only where an example has one; {data.name} has {has}")
        module = copy.deepcopy(module)
        bench = Workbench(module, Layout.of(module))
        for penalty in algorithm.penalties:
            with naming_part(penalty.name):
                layer = classifier_layer(module, penalty.layer)
                if not module.get_submodule(layer).weight.requires_grad:
                    raise FedquiltError(f"{penalty.name} changes how the classifier learns, but {layer} is frozen")
        with naming_part("run"):
            measured = _measured(metrics, data)
        own = (own_test, own_split, partition)
        federation = cls(bench, bench.read(), algorithm, data, held, seed, server_rows, *own, {}, 0, 0, measured)
        with pinned():
            bench.put_channels_last(True)
            if not federation.runs():
                bench.put_channels_last(False)
            federation.rehearse()
            return federation.with_announcements()

    def with_announcements(self) -> Federation:
        """Return the federation with what its server tells at first."""
        setting = Setting(self.data, self.partition, self.server_rows, self.bench, self.initial)
        firsts = {}
        for exchange in self.algorithm.exchanges:
            if exchange.announce is not None:
                with naming_part(exchange.name):
                    firsts[exchange.name] = exchange.announce(setting)
        return replace(
            self,
            announced={name: dict(first.announced) for name, first in firsts.items()},
            uploaded_first=sum(first.uploaded for first in firsts.values()),
            downloaded_first=max((first.asked for first in firsts.values()), default=0) * self.layout.nbytes,
        )

    def placed(self, place: Place) -> Federation:
        """Return the federation with its model elsewhere, or itself if it is there already."""
        bench = self.bench.placed(place)
        return self if bench is self.bench else replace(self, bench=bench)

    def apart(self) -> Federation:
        """Return the federation with a model that no other process works on."""
        return replace(self, bench=self.bench.apart())

    def with_kernels(self) -> Federation:
        """Return the federation with a model whose layers are computed by kernels."""
        changed = replace(self, bench=self.bench.with_kernels(channels_last=True))
        return changed if changed.runs() else replace(self, bench=self.bench.with_kernels(channels_last=False))

    def start(self) -> RunState:
        """Return the state of a run before its first round."""
        return RunState.of(initial_state(self.algorithm, self.initial, self.announced))

    @cached_property
    def population(self) -> Population:
        """What planning may know of all clients."""
        return Population(self.partition, self.data.train.y.numpy(), self.data.classes)

    @property
    def layout(self) -> Layout:
        """What stands where in the model's vector."""
        return self.bench.layout

    def runs(self) -> bool:
        """Say whether the model runs forward and backward on two examples; its values are left as they were."""
        return self.failure() is None

    def failure(self) -> Exception | None:
        """Return why the model does not run forward and backward on two examples, where it is and in its precision."""
        rows = torch.arange(min(2, len(self.data.train)))
        x, y = self.data.train.x[rows], self.data.train.y[rows]
        params, buffers = self.bench.load(self.initial)
        place, algorithm = self.bench.place, self.algorithm
        recipe = Recipe(self.bench.module.train(), algorithm.loss, algorithm.local, EAGER, (), place.autocast)
        with torch_seeded(self.seed, "trial", device=place.device):
            try:
                x, y = place.put((self.data.prepare(x) if self.data.prepare is not None else x, whole(y)))
                outputs, _ = forward(recipe, params, buffers, x)
                torch.autograd.grad(algorithm.loss(outputs, y), tuple(params.values()), allow_unused=True)
            except ExampleError:  # an example that cannot be read says nothing of the model
                return None
            except Exception as error:
                return error
            finally:
                self.bench.load(self.initial)
        return None

    def rehearse(self) -> None:
        """Run the model on the examples with the largest labels, so that one that does not fit is refused at once."""
        with torch_seeded(self.seed, "rehearsal"):
            try:
                for name in get_args(SplitName):
                    labels = self.split(name).y
                    row = int(labels.reshape(len(labels), -1).amax(dim=1).argmax())
                    # A training example that cannot be read is the fault of the client that holds it.
                    with suppress(ExampleError) if name == "train" else nullcontext():
                        self.evaluate(self.initial, name, (row, row + 1))
            except ExampleError as error:
                error.part = "data"
                raise
            except SpecError as error:  # the loss or a metric says what is wrong
                error.part = "run"
                raise
            except Exception as error:
                shape = tuple(self.data.test.x.shape[1:])
                targets = f"there are {self.data.classes} classes" if self.data.classes else "targets are numbers"
                raise FedquiltError(
                    f"the model does not fit the data set {self.data.name} (an example is {shape}, {targets}): "
                    f"{told(error)}"
                ) from error

    def run_client(
        self, state: ServerState, round_: int, client: int, slot: int, kept: State | None
    ) -> ClientUpdate | Fault:
        """Run one client's update on a server's model and announcements; whatever goes wrong becomes its fault."""
        data = self._data_of(client)
        if not len(data):
            return Fault(client, slot, NOTHING)
        try:
            return client_update(self.algorithm, self._context(state, round_, client, slot, kept), data)
        except ClientError as error:
            return Fault(client, slot, str(error))
        except Exception as error:
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
        empty = self.population.sizes[list(clients)] == 0
        held = [own for own, nothing in zip(each, empty.tolist(), strict=True) if not nothing]
        faults = [Fault(own[0], own[1], NOTHING) for own, nothing in zip(each, empty.tolist(), strict=True) if nothing]
        if not held:
            return [*faults]
        try:
            return [*self.train_block(program, state, round_, *zip(*held, strict=True)), *faults]
        except Exception as error:
            alone = [self.run_client(state, round_, *own) for own in held]
            if not any(isinstance(result, Fault) for result in alone):  # it is the program that failed
                why = f"cannot be trained in a block: {told(error)}"
                return [*(Fault(client, slot, why) for client, slot, _ in held), *faults]
            return [*alone, *faults]

    def train_block(
        self,
        program: Program,
        state: ServerState,
        round_: int,
        clients: Sequence[int],
        slots: Sequence[int],
        kept: Sequence[State | None],
    ) -> Sequence[Answer]:
        """Train a block of clients, all of whom hold data, as one program."""
        each = zip(clients, slots, kept, strict=True)
        contexts = [self._context(state, round_, client, slot, own) for client, slot, own in each]
        return block_update(program, self.algorithm, contexts, [self._data_of(client) for client in clients])

    def evaluate_own(self, state: ServerState, round_: int, client: int, kept: State | None) -> Counted:
        """Evaluate the model that a client would use on its own data."""
        assert self.own_test is not None
        context = self._context(state, round_, client, client, kept)
        model = own_model(self.algorithm, context, self._data_of(client))
        rows = self.own_test.client(client)
        with torch_seeded(self.seed, "evaluate own", client):
            counted = [
                evaluate_chunk(
                    self.bench, self.algorithm.loss, model, self.data, self.own_split, rows[first:last], self.metrics
                )
                for first, last in chunks(len(rows))
            ]
        return added(counted)

    def _context(self, state: ServerState, round_: int, client: int, slot: int, kept: State | None) -> Context:
        return Context(
            bench=self.bench,
            start=state.model,
            seed=self.seed,
            round=round_,
            client=client,
            slot=slot,
            kept=kept or {},
            announced=state.announced,
            population=len(self.partition),
            corruption=self.algorithm.corruption,
        )

    def _data_of(self, client: int) -> ClientData:
        return ClientData(self.data, self.data.train, self.partition.client(client))

    def split(self, name: SplitName) -> Split:
        """Return a split of the data by name."""
        return self.data.train if name == "train" else self.data.test

    def evaluate(self, model: ModelState, split: SplitName, rows: tuple[int, int]) -> Counted:
        """Evaluate a model on some rows of a split."""
        with torch_seeded(self.seed, f"evaluate {split}", rows[0]):
            return evaluate_chunk(
                self.bench, self.algorithm.loss, model, self.data, self.split(split), rows, self.metrics
            )


def _measured(metrics: Sequence[Metric] | None, data: Data) -> tuple[Metric, ...]:
    if metrics is None:
        return (accuracy(),) if data.classes else ()
    for metric in metrics:
        if metric.classes > data.classes:
            has = f"has {data.classes}" if data.classes else "has none: its targets are numbers"
            least = f"at least {metric.classes} classes" if metric.classes > 1 else "classes"
            raise SpecError(f"metrics: {metric.name} needs {least}; the data set {data.name} {has}")
    return tuple(metrics)


def _require_rows(data: Data, held: Partition, part: str, rows: int) -> None:
    """Refuse a partition that names examples which are not there."""
    if len(held.indices) and int(held.indices.min()) < 0:
        raise FedquiltError(f"the partition names example {int(held.indices.min())}; positions start at 0")
    if len(held.indices) and int(held.indices.max()) >= rows:
        raise FedquiltError(
            f"the partition names example {int(held.indices.max())}, but the data set {data.name} has only "
            f"{rows} {part} examples"
        )
