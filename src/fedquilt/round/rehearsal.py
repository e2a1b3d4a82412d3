"""Tries a model out before the first round: whether it runs, fits the data, and can learn from a single example."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import nn

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.metric import Metric
from fedquilt.base.errors import ExampleError, FedquiltError, SpecError, reason_of
from fedquilt.base.rng import torch_seeded
from fedquilt.compute.layout import ModelState
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, Split
from fedquilt.round.evaluation import Evaluator
from fedquilt.round.local_step import EAGER, Recipe, forward


class Tried(Protocol):
    """A view of a run whose model can be tried out."""

    @property
    def replica(self) -> Replica: ...  # noqa: D102

    @property
    def initial(self) -> ModelState: ...  # noqa: D102

    @property
    def algorithm(self) -> Algorithm: ...  # noqa: D102

    @property
    def data(self) -> Data: ...  # noqa: D102

    @property
    def metrics(self) -> Sequence[Metric]: ...  # noqa: D102

    @property
    def seed(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Tries a model out on a few examples; its values are left as they were."""

    replica: Replica
    initial: ModelState
    algorithm: Algorithm
    data: Data
    metrics: Sequence[Metric]
    seed: int

    @classmethod
    def of(cls, view: Tried) -> Rehearsal:
        """Return the rehearsal of a view of a run, with the examples that it has."""
        return cls(view.replica, view.initial, view.algorithm, view.data, view.metrics, view.seed)

    @cached_property
    def stand_in(self) -> Split:
        """Examples of the server's own that look like clients': the test set, unless its examples look different.

        A site that has no test set has only its clients' examples.
        """
        train, test = self.data.train, self.data.test
        alike = all(
            a.shape[1:] == b.shape[1:] and a.dtype == b.dtype and type(a) is type(b)
            for a, b in ((train.x, test.x), (train.y, test.y))
        )
        return test if alike and len(test) else train

    def runs(self) -> bool:
        """Say whether the model runs forward and backward on two examples."""
        return self.failure() is None

    def failure(self, examples: int = 2) -> Exception | None:
        """Return why the model does not run forward and backward on some examples, where it is and in its precision."""
        # The server's own examples: what is in a client's must not decide how the others are computed.
        rows = torch.arange(min(examples, len(self.stand_in)))
        params, buffers = self.replica.load(self.initial)
        placement, algorithm = self.replica.placement, self.algorithm
        recipe = Recipe(self.replica.module.train(), algorithm.loss, algorithm.local, EAGER, (), placement.autocast)
        with torch_seeded(self.seed, "trial", device=placement.device):
            try:
                x, y = placement.put(self.data.batch(self.stand_in, rows))
                outputs, _ = forward(recipe, params, buffers, x)
                torch.autograd.grad(algorithm.loss(outputs, y), tuple(params.values()), allow_unused=True)
            except ExampleError:  # an example that cannot be read says nothing of the model
                return None
            except Exception as error:
                return error
            finally:
                self.replica.load(self.initial)
        return None

    def needs_two_examples(self) -> bool:
        """Say whether the model cannot be trained on a single example, because of its batch normalisation."""
        if not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self.replica.module.modules()):
            return False
        error = self.failure(1)
        return isinstance(error, ValueError) and "more than 1 value per channel" in str(error)

    def rehearse(self) -> None:
        """Run the model on the examples with the largest labels, so that one that does not fit is refused at once."""
        evaluator = Evaluator(self.replica, self.algorithm.loss, self.data, self.metrics, self.seed)
        with torch_seeded(self.seed, "rehearsal"):
            try:
                for name, examples in (("train", self.data.train), ("test", self.data.test)):
                    if not len(examples):  # a server need not have training examples, nor a site a test set
                        continue
                    split, row = self._with_largest_label(name)
                    with suppress(ExampleError) if name == "train" else nullcontext():
                        evaluator.count(self.initial, split, (row, row + 1))
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
                    f"{reason_of(error)}"
                ) from error

    def _with_largest_label(self, name: str) -> tuple[Split, int]:
        test = self.data.test
        labels = (test if name == "test" else self.data.train).y
        row = int(labels.reshape(len(labels), -1).amax(dim=1).argmax())
        if name == "test":
            return test, row
        if self.stand_in is test:
            # Labels of clients with the server's example: one that fails is the fault of who holds it.
            return replace(self.data.train, x=test.x, y=labels[row : row + 1]), 0
        return self.data.train, row
