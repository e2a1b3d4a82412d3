"""Tries a model out before the first round: whether it runs, fits the data, and can learn from a single example."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.base.errors import ExampleError, FedquiltError, SpecError, reason_of
from fedquilt.base.rng import torch_seeded
from fedquilt.compute.layout import ModelState
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, Split
from fedquilt.round.evaluation import Evaluator
from fedquilt.round.local_step import EAGER, Recipe, forward


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Tries a model out on a few examples; its values are left as they were."""

    replica: Replica
    initial: ModelState
    algorithm: Algorithm
    data: Data
    seed: int
    evaluator: Evaluator

    @cached_property
    def stand_in(self) -> Split:
        """Examples of the server's own that look like clients': the test set, unless its examples look different."""
        train, test = self.data.train, self.data.test
        alike = all(
            a.shape[1:] == b.shape[1:] and a.dtype == b.dtype and type(a) is type(b)
            for a, b in ((train.x, test.x), (train.y, test.y))
        )
        return test if alike else train

    def runs(self) -> bool:
        """Say whether the model runs forward and backward on two examples."""
        return self.failure() is None

    def failure(self, examples: int = 2) -> Exception | None:
        """Return why the model does not run forward and backward on some examples, where it is and in its precision."""
        # The server's own examples: what is in a client's must not decide how the others are computed.
        rows = torch.arange(min(examples, len(self.stand_in)))
        params, buffers = self.replica.load(self.initial)
        place, algorithm = self.replica.place, self.algorithm
        recipe = Recipe(self.replica.module.train(), algorithm.loss, algorithm.local, EAGER, (), place.autocast)
        with torch_seeded(self.seed, "trial", device=place.device):
            try:
                x, y = place.put(self.data.batch(self.stand_in, rows))
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
        with torch_seeded(self.seed, "rehearsal"):
            try:
                for name in ("train", "test"):
                    split, row = self._with_largest_label(name)
                    with suppress(ExampleError) if name == "train" else nullcontext():
                        self.evaluator.count(self.initial, split, (row, row + 1))
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
