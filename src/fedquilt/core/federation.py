"""A federation: model, data, who holds what, algorithm and seed. What an engine needs to run a round's clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, TypeVar, get_args

import torch
from torch import nn

from fedquilt.core.algorithm import Algorithm, Indices, check_consistent
from fedquilt.core.block import Program, block_update
from fedquilt.core.client import ClientUpdate, Fault, client_update
from fedquilt.core.context import ClientData, Context
from fedquilt.core.evaluation import Counted, added, chunks, evaluate_chunk
from fedquilt.core.exchange import Setting
from fedquilt.core.fit import ClientError
from fedquilt.core.hosting import alone, passes, too_slow
from fedquilt.core.interrupts import TooSlowError, time_limit
from fedquilt.core.local import EAGER, Recipe, forward
from fedquilt.core.metric import Metric
from fedquilt.core.own import hold_out, own_model
from fedquilt.core.params import Layout, ModelState
from fedquilt.core.penalty import classifier_layer
from fedquilt.core.pinned import pin_again, pinned
from fedquilt.core.place import Place
from fedquilt.core.population import Population
from fedquilt.core.replaced import replaced
from fedquilt.core.rng import torch_seeded
from fedquilt.core.server_data import take_share
from fedquilt.core.state import RunState, ServerState, initial_state
from fedquilt.core.transform import State
from fedquilt.core.updates import Answer
from fedquilt.core.workbench import Workbench, copied
from fedquilt.data.data import Data, Split, require_sound, whole
from fedquilt.errors import ExampleError, FedquiltError, SpecError, naming_part, told
from fedquilt.partition.partition import Partition
from fedquilt.parts.metrics import accuracy
from fedquilt.parts.sampling import Epochs
from fedquilt.simulate.simulation import NOTHING as NO_SIMULATION
from fedquilt.simulate.simulation import Simulation

SplitName = Literal["train", "test"]

T = TypeVar("T")

NOTHING = "holds no examples"
SINGLE = "holds a single example, and the model's batch normalisation needs two or more in a batch"


@dataclass(frozen=True, eq=False)
class Federation:
    """Everything that stays the same over a run's rounds.

    `announced` is what the server tells at first besides the model, for which clients downloaded and uploaded
    `downloaded_first` and `uploaded_first` bytes.
    `server_rows` are the examples that the server keeps to itself, `own_test` those rows of `own_split` that clients are
    tested on by themselves. `given` is the partition before any were taken. `metrics` are measured besides the loss.
    `client_seconds` is how long a client may take, by the clock, before it is left out of the round.
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
        flips = any(corruption.labels is not None for corruption in simulation.corruption)
        if flips and (data.train.y.dim() > 1 or not data.classes):
            has = "sequences" if data.classes else "numbers as targets"
            raise FedquiltError(f"corrupt: labels can be flipped only where an example has one; {data.name} has {has}")
        module = copied(module)
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
        federation = replace(federation, simulation=simulation, client_seconds=client_seconds)
        with pinned():
            bench.put_channels_last(True)
            if not federation.runs():
                bench.put_channels_last(False)
            federation.rehearse()
            return federation.without_single_examples().with_announcements()

    def without_single_examples(self) -> Federation:
        """Return the federation with a method whose "auto" of `drop_last` is decided.

        Last batches of one example are left out where the model cannot learn from one.
        """
        normalising = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self.bench.module.modules())
        error = self.failure(1) if normalising else None
        single = isinstance(error, ValueError) and "more than 1 value per channel" in str(error)
        if not single:
            return self
        return replace(self, algorithm=replaced(self.algorithm, Epochs, Epochs.without_single))

    @property
    def leaves_out_single_examples(self) -> bool:
        """Whether the model cannot learn from one example, so that last batches of one are left out."""
        return getattr(self.algorithm.sample, "drop_last", None) == "single"

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

    def failure(self, examples: int = 2) -> Exception | None:
        """Return why the model does not run forward and backward on some examples, where it is and in its precision."""
        # The server's own examples: what is in a client's must not decide how the others are computed.
        x, y = self.stand_in.take(torch.arange(min(examples, len(self.stand_in))))
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

    @cached_property
    def stand_in(self) -> Split:
        """Examples of the server's own that look like clients': the test set, unless its examples look different."""
        train, test = self.data.train, self.data.test
        alike = all(
            a.shape[1:] == b.shape[1:] and a.dtype == b.dtype and type(a) is type(b)
            for a, b in ((train.x, test.x), (train.y, test.y))
        )
        return test if alike else train

    def rehearse(self) -> None:
        """Run the model on the examples with the largest labels, so that one that does not fit is refused at once."""
        with torch_seeded(self.seed, "rehearsal"):
            try:
                for name in get_args(SplitName):
                    labels = self.split(name).y
                    row = int(labels.reshape(len(labels), -1).amax(dim=1).argmax())
                    split = self.data.test
                    if name == "train" and self.stand_in is split:
                        # Labels of clients with the server's example: one that fails is the fault of who holds it.
                        split, row = replace(self.data.train, x=split.x, y=labels[row : row + 1]), 0
                    elif name == "train":
                        split = self.data.train
                    with suppress(ExampleError) if name == "train" else nullcontext():
                        self._evaluate_rows(self.initial, split, (row, row + 1))
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
            return Fault(client, slot, NOTHING, kind="no examples")
        if len(data) == 1 and self.leaves_out_single_examples:
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
        empty = (self.population.sizes[list(clients)] == 0).tolist()
        held = [own for own, nothing in zip(each, empty, strict=True) if not nothing]
        faults = [
            Fault(client, slot, NOTHING, kind="no examples")
            for (client, slot, _), nothing in zip(each, empty, strict=True)
            if nothing
        ]
        if not held:
            return [*faults]
        seconds = None if self.client_seconds is None else self.client_seconds * len(held)
        try:
            with alone([client for client, _, _ in held]), time_limit(seconds):
                return [*self.train_block(program, state, round_, *zip(*held, strict=True)), *faults]
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
        contexts = [self.context(state, round_, client, slot, own) for client, slot, own in each]
        return block_update(program, self.algorithm, contexts, [self._data_of(client) for client in clients])

    def evaluate_own(self, state: ServerState, round_: int, client: int, kept: State | None) -> Counted | Fault:
        """Evaluate the model that a client would use on its own data; whatever goes wrong becomes its fault."""
        context = self.context(state, round_, client, client, kept)
        return self._or_fault(client, client, partial(self._counted_own, context))

    def _counted_own(self, context: Context) -> Counted:
        assert self.own_test is not None
        model = own_model(self.algorithm, context, self._data_of(context.client))
        rows = self.own_test.client(context.client)
        with torch_seeded(self.seed, "evaluate own", context.client):
            cut = [rows[first:last] for first, last in chunks(len(rows))]
            return added([self._evaluate_rows(model, self.own_split, part) for part in cut])

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
            population=len(self.partition),
            corruption=self.simulation.corruption,
        )

    def _data_of(self, client: int) -> ClientData:
        return ClientData(self.data, self.data.train, self.partition.client(client))

    def split(self, name: SplitName) -> Split:
        """Return a split of the data by name."""
        return self.data.train if name == "train" else self.data.test

    def evaluate(self, model: ModelState, split: SplitName, rows: tuple[int, int]) -> Counted:
        """Evaluate a model on some rows of a split."""
        with torch_seeded(self.seed, f"evaluate {split}", rows[0]):
            return self._evaluate_rows(model, self.split(split), rows)

    def _evaluate_rows(self, model: ModelState, split: Split, rows: tuple[int, int] | Indices) -> Counted:
        try:
            return evaluate_chunk(self.bench, self.algorithm.loss, model, self.data, split, rows, self.metrics)
        finally:
            pin_again()


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
