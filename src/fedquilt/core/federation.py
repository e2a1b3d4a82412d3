"""A federation: model, data, who holds what, algorithm and seed. What an engine needs to run a round's clients."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from fedquilt.core.algorithm import Algorithm
from fedquilt.core.client import ClientData, ClientError, ClientUpdate, Context, Fault, client_update
from fedquilt.core.evaluation import Counted, evaluate_chunk
from fedquilt.core.params import Layout, ModelState, Tensors
from fedquilt.core.pinned import pinned
from fedquilt.core.rng import torch_seeded
from fedquilt.core.transform import State
from fedquilt.core.workbench import Workbench
from fedquilt.data.data import Data, Split
from fedquilt.errors import FedquiltError, told
from fedquilt.partition.partition import Partition

SplitName = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class Federation:
    """Everything that stays the same over a run's rounds."""

    bench: Workbench
    initial: ModelState
    algorithm: Algorithm
    data: Data
    partition: Partition
    seed: int
    announced: Tensors

    @classmethod
    def of(cls, module: nn.Module, data: Data, partition: Partition, algorithm: Algorithm, seed: int) -> Federation:
        """Put a federation together. The module is copied: the caller's own is never changed."""
        held = partition.pooled() if algorithm.pooled else partition
        if len(held.indices) and int(held.indices.min()) < 0:
            raise FedquiltError(f"the partition names example {int(held.indices.min())}; positions start at 0")
        if len(held.indices) and int(held.indices.max()) >= len(data.train):
            raise FedquiltError(
                f"the partition names example {int(held.indices.max())}, but the data set {data.name} has only "
                f"{len(data.train)} training examples"
            )
        module = copy.deepcopy(module)
        bench = Workbench(module, Layout.of(module))
        announced = algorithm.announce(data, held) if algorithm.announce is not None else {}
        federation = cls(bench, bench.read(), algorithm, data, held, seed, announced)
        with pinned():
            bench.put_channels_last(True)
            if not federation.runs():
                bench.put_channels_last(False)
            federation.rehearse()
        return federation

    @property
    def layout(self) -> Layout:
        """What stands where in the model's vector."""
        return self.bench.layout

    def runs(self) -> bool:
        """Say whether the model runs forward and backward on two examples; its values are left as they were."""
        rows = torch.arange(min(2, len(self.data.train)))
        x, y = self.data.train.x[rows], self.data.train.y[rows]
        params, _ = self.bench.load(self.initial)
        with torch_seeded(self.seed, "trial"):
            try:
                outputs = self.bench.module.train()(self.data.prepare(x) if self.data.prepare is not None else x)
                torch.autograd.grad(self.algorithm.loss(outputs, y), tuple(params.values()), allow_unused=True)
            except Exception:
                return False
            finally:
                self.bench.load(self.initial)
        return True

    def rehearse(self) -> None:
        """Run the model on the examples with the largest labels, so that one that does not fit is refused at once."""
        with torch_seeded(self.seed, "rehearsal"):
            try:
                for name in get_args(SplitName):
                    labels = self.split(name).y
                    row = int(labels.reshape(len(labels), -1).amax(dim=1).argmax())
                    self.evaluate(self.initial, name, (row, row + 1))
            except Exception as error:
                shape = tuple(self.data.test.x.shape[1:])
                raise FedquiltError(
                    f"the model does not fit the data set {self.data.name} (an example is {shape}, there are "
                    f"{self.data.classes} classes): {type(error).__name__}: {error}"
                ) from error

    def run_client(
        self, model: ModelState, round_: int, client: int, slot: int, kept: State | None
    ) -> ClientUpdate | Fault:
        """Run one client's update; whatever goes wrong in it becomes a fault of that client."""
        context = Context(self.bench, model, self.seed, round_, client, slot, kept, self.announced)
        data = ClientData(self.data, self.data.train, self.partition.client(client))
        if not len(data):
            return Fault(client, slot, "holds no examples")
        try:
            return client_update(self.algorithm, context, data)
        except ClientError as error:
            return Fault(client, slot, str(error))
        except Exception as error:
            return Fault(client, slot, told(error))

    def split(self, name: SplitName) -> Split:
        """Return a split of the data by name."""
        return self.data.train if name == "train" else self.data.test

    def evaluate(self, model: ModelState, split: SplitName, rows: tuple[int, int]) -> Counted:
        """Evaluate a model on some rows of a split."""
        with torch_seeded(self.seed, f"evaluate {split}", rows[0]):
            return evaluate_chunk(self.bench, self.algorithm.loss, model, self.data, self.split(split), rows)
