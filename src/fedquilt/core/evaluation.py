"""Loss and metrics of a model on a split, in fixed chunks that can be shared out among workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.func import functional_call

from fedquilt.core.loss import Loss
from fedquilt.core.metric import Metric
from fedquilt.core.params import ModelState
from fedquilt.core.workbench import Workbench
from fedquilt.data.data import Data, Split, whole
from fedquilt.errors import FedquiltError
from fedquilt.partition.partition import Indices

CHUNK = 1000
"""Examples evaluated at a time. Fixed: a matrix product's last bits may depend on its number of rows."""


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


def chunks(examples: int) -> list[tuple[int, int]]:
    """Cut a split into ranges of rows, the last one smaller.

    >>> chunks(2500)
    [(0, 1000), (1000, 2000), (2000, 2500)]
    """
    return [(first, min(first + CHUNK, examples)) for first in range(0, examples, CHUNK)]


@torch.no_grad()
def evaluate_chunk(
    bench: Workbench,
    loss: Loss,
    model: ModelState,
    data: Data,
    split: Split,
    rows: tuple[int, int] | Indices,
    metrics: Sequence[Metric],
) -> Counted:
    """Evaluate a model on some rows of a split (a range, or their positions), in evaluation mode."""
    if data.at_once is not None and (parts := _cut(rows, data.at_once))[1:]:
        return added(evaluate_chunk(bench, loss, model, data, split, part, metrics) for part in parts)
    if isinstance(rows, tuple):
        x, y = split.x[slice(*rows)], split.y[slice(*rows)]
    else:
        x, y = split.take(torch.from_numpy(rows))
    if data.prepare is not None:
        x = data.prepare(x)
    if split.noise is not None:
        x = split.noise.added(x, np.arange(*rows) if isinstance(rows, tuple) else rows)
    x, y = bench.place.put((x, whole(y)))
    outputs = functional_call(bench.module.eval(), bench.tensors(model), (x,))
    if outputs.shape[:-1] != y.shape and any(metric.classes for metric in metrics):
        raise ValueError(f"it returns {tuple(outputs.shape)} for labels of {tuple(y.shape)}")
    losses, counted = bench.place.fetch(loss.each(outputs, y))
    outputs, y = bench.place.fetch((outputs, y))
    total, predictions = float(losses.double().sum()), losses.numel()
    if counted is not None:
        total, predictions = float((losses * counted).double().sum()), int(counted.sum())
        outputs, y = outputs[counted > 0], y[counted > 0]
    sums = [metric.total(outputs, y) for metric in metrics]
    right = [int(value) for metric, value in zip(metrics, sums, strict=True) if metric.name == ACCURACY]
    return Counted(total, right[0] if right else None, predictions, sums)


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
