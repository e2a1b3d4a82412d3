"""Loss and metrics of a model on a split, in fixed chunks that can be shared out among workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch.func import functional_call

from fedquilt.algorithm.loss import Loss
from fedquilt.algorithm.metric import Metric
from fedquilt.base.errors import FedquiltError, reason_of
from fedquilt.base.rng import torch_seeded
from fedquilt.base.types import Indices
from fedquilt.compute.layout import ModelState
from fedquilt.compute.pinned import pin_again
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, Split

SplitName = Literal["train", "test", "validation"]
"""The part of the data that a model is evaluated on; "train" is without what is held out for "validation"."""

CHUNK = 1000
"""Examples evaluated at a time. Fixed: a matrix product's last bits may depend on its number of rows."""

PREDICTIONS = 8000
"""Predictions made at a time, where an example has many, such as a text: more would not fit into caches."""

LEAST = 50
"""Examples evaluated at a time, at least: of fewer, calls would take the time."""


ACCURACY = "accuracy"
"""The metric that a run is judged by, where it is measured."""


class Counted(NamedTuple):
    """Sums over one chunk: of the losses, of right predictions (None: accuracy is not measured), of predictions.

    `sums` are those of the metrics, in their order.
    """

    loss: float
    right: int | None
    predictions: int
    sums: Sequence[float] = ()


class Evaluation(NamedTuple):
    """Mean loss, share of right predictions (None: it is not measured), and the other metrics by name."""

    loss: float
    accuracy: float | None
    metrics: dict[str, float]


def chunks(examples: int, predictions: int = 1) -> list[tuple[int, int]]:
    """Cut a split into ranges of rows, the last one smaller; `predictions` is how many each example has.

    >>> chunks(2500)
    [(0, 1000), (1000, 2000), (2000, 2500)]
    >>> chunks(250, predictions=80)
    [(0, 100), (100, 200), (200, 250)]
    """
    size = min(CHUNK, max(PREDICTIONS // max(predictions, 1), LEAST))
    return [(first, min(first + size, examples)) for first in range(0, examples, size)]


@torch.no_grad()
def evaluate_chunk(
    replica: Replica,
    loss: Loss,
    model: ModelState,
    data: Data,
    split: Split,
    rows: tuple[int, int] | Indices,
    metrics: Sequence[Metric],
) -> Counted:
    """Evaluate a model on some rows of a split (a range, or their positions), in evaluation mode."""
    if data.at_once is not None and (parts := _cut(rows, data.at_once))[1:]:
        return added(evaluate_chunk(replica, loss, model, data, split, part, metrics) for part in parts)
    x, y = replica.placement.put(data.batch(split, range(*rows) if isinstance(rows, tuple) else torch.from_numpy(rows)))
    outputs = functional_call(replica.module.eval(), replica.tensors(model), (x,))
    if outputs.shape[:-1] != y.shape and any(metric.classes for metric in metrics):
        raise ValueError(f"it returns {tuple(outputs.shape)} for labels of {tuple(y.shape)}")
    losses, counted = replica.placement.fetch(loss.each(outputs, y))
    outputs, y = replica.placement.fetch((outputs, y))
    total, predictions = float(losses.double().sum()), losses.numel()
    if counted is not None:
        total, predictions = float((losses * counted).double().sum()), int(counted.sum())
        outputs, y = outputs[counted > 0], y[counted > 0]
    sums = [metric.total(outputs, y) for metric in metrics]
    right = [int(value) for metric, value in zip(metrics, sums, strict=True) if metric.name == ACCURACY]
    return Counted(total, right[0] if right else None, predictions, sums)


def no_rows() -> Indices:
    """Return the positions of no examples."""
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluates models on a data set, with the draws of a run."""

    replica: Replica
    loss: Loss
    data: Data
    metrics: Sequence[Metric]
    seed: int
    held_out: Indices = field(default_factory=no_rows)

    def split(self, name: SplitName) -> Split:
        """Return a split of the data by name; `held_out` are the training examples that are held out for validation."""
        if name == "test":
            return self.data.test
        if name == "validation":
            return self._validation
        return self._rest if len(self.held_out) else self.data.train

    @cached_property
    def _validation(self) -> Split:
        return self.data.train.only(self.held_out)

    @cached_property
    def _rest(self) -> Split:
        return self.data.train.only(np.delete(np.arange(len(self.data.train)), self.held_out))

    def evaluate_all(self, model: ModelState, split: SplitName) -> Evaluation:
        """Evaluate a model on a whole split, chunk by chunk."""
        rows = chunks(len(self.split(split)), self.data.predictions)
        try:
            return combine([self.evaluate(model, split, part) for part in rows], self.metrics)
        except Exception as error:
            raise evaluation_failed(reason_of(error)) from error

    def evaluate(self, model: ModelState, split: SplitName, rows: tuple[int, int]) -> Counted:
        """Evaluate a model on some rows of a split."""
        if rows[1] > len(self.split(split)):
            held = len(self.split(split))
            raise FedquiltError(f"rows {rows[0]} to {rows[1]} of the {split} set are not here: {held} examples are")
        with torch_seeded(self.seed, f"evaluate {split}", rows[0]):
            return self.count(model, self.split(split), rows)

    def count(self, model: ModelState, split: Split, rows: tuple[int, int] | Indices) -> Counted:
        """Evaluate a model, and put back what its code changed of the process."""
        try:
            return evaluate_chunk(self.replica, self.loss, model, self.data, split, rows, self.metrics)
        finally:
            pin_again()


def _cut(rows: tuple[int, int] | Indices, most: int) -> list[tuple[int, int]] | list[Indices]:
    if isinstance(rows, tuple):
        return [(first, min(first + most, rows[1])) for first in range(rows[0], rows[1], most)]
    return [rows[first : first + most] for first in range(0, len(rows), most)]


def evaluation_failed(reason: str) -> FedquiltError:
    """Return the error of a model that cannot be evaluated."""
    return FedquiltError(f"the model could not be evaluated: {reason}")


def added(parts: Iterable[Counted]) -> Counted:
    """Add up the sums of chunks, exactly: the order does not matter.

    >>> added([Counted(3.0, 1, 2, [0.1]), Counted(1.0, 2, 2, [0.2])])
    Counted(loss=4.0, right=3, predictions=4, sums=[0.30000000000000004])
    """
    losses, right, predictions, sums = zip(*parts, strict=True)
    hits = None if right[0] is None else sum(right)
    return Counted(_exact(losses), hits, sum(predictions), [_exact(each) for each in zip(*sums, strict=True)])


def _exact(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # a sum that leaves its range, or of both infinities
        return math.nan


def combine(parts: Iterable[Counted], metrics: Sequence[Metric] = ()) -> Evaluation:
    """Make the evaluation of a split from those of its chunks.

    >>> combine([Counted(3.0, 1, 2), Counted(1.0, 2, 2)])
    Evaluation(loss=1.0, accuracy=0.75, metrics={})
    """
    total = added(parts)
    accuracy = None if total.right is None else total.right / total.predictions
    others = {
        metric.name: metric.finished(value / total.predictions)
        for metric, value in zip(metrics, total.sums, strict=True)
        if metric.name != ACCURACY
    }
    return Evaluation(total.loss / total.predictions, accuracy, others)
