"""Loss and accuracy of a model on a split, in fixed chunks that can be shared out among workers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch.func import functional_call

from fedquilt.core.loss import Loss
from fedquilt.core.params import ModelState
from fedquilt.core.workbench import Workbench
from fedquilt.data.data import Data, Split
from fedquilt.errors import FedquiltError
from fedquilt.partition.partition import Indices

CHUNK = 1000
"""Examples evaluated at a time. Fixed: a matrix product's last bits may depend on its number of rows."""


class Counted(NamedTuple):
    """Sums over one chunk: of the losses, of right predictions, of predictions."""

    loss: float
    right: int
    predictions: int


class Evaluation(NamedTuple):
    """Mean loss and share of right predictions."""

    loss: float
    accuracy: float


def chunks(examples: int) -> list[tuple[int, int]]:
    """Cut a split into ranges of rows, the last one smaller.

    >>> chunks(2500)
    [(0, 1000), (1000, 2000), (2000, 2500)]
    """
    return [(first, min(first + CHUNK, examples)) for first in range(0, examples, CHUNK)]


@torch.no_grad()
def evaluate_chunk(
    bench: Workbench, loss: Loss, model: ModelState, data: Data, split: Split, rows: tuple[int, int] | Indices
) -> Counted:
    """Evaluate a model on some rows of a split (a range, or their positions), in evaluation mode."""
    if data.at_once is not None and (parts := _cut(rows, data.at_once))[1:]:
        counted_parts = [evaluate_chunk(bench, loss, model, data, split, part) for part in parts]
        return Counted(*map(sum, zip(*counted_parts, strict=True)))
    if isinstance(rows, tuple):
        x, y = split.x[slice(*rows)], split.y[slice(*rows)]
    else:
        x, y = split.take(torch.from_numpy(rows))
    if data.prepare is not None:
        x = data.prepare(x)
    x, y = bench.place.put((x, y))
    outputs = functional_call(bench.module.eval(), bench.tensors(model), (x,))
    if outputs.shape[:-1] != y.shape:
        raise ValueError(f"it returns {tuple(outputs.shape)} for labels of {tuple(y.shape)}")
    losses, counted = bench.place.fetch(loss.each(outputs, y))
    right = bench.place.fetch(outputs.argmax(dim=-1) == y)
    if counted is None:
        return Counted(float(losses.double().sum()), int(right.sum()), losses.numel())
    return Counted(float((losses * counted).double().sum()), int((right * counted).sum()), int(counted.sum()))


def _cut(rows: tuple[int, int] | Indices, most: int) -> list[tuple[int, int]] | list[Indices]:
    if isinstance(rows, tuple):
        return [(first, min(first + most, rows[1])) for first in range(rows[0], rows[1], most)]
    return [rows[first : first + most] for first in range(0, len(rows), most)]


def evaluation_failed(reason: str) -> FedquiltError:
    """Return the error of a model that cannot be evaluated."""
    return FedquiltError(f"the model could not be evaluated: {reason}")


def combine(parts: Iterable[Counted]) -> Evaluation:
    """Add up the chunks of a split.

    >>> combine([Counted(3.0, 1, 2), Counted(1.0, 2, 2)])
    Evaluation(loss=1.0, accuracy=0.75)
    """
    losses, right, predictions = zip(*parts, strict=True)
    return Evaluation(math.fsum(losses) / sum(predictions), sum(right) / sum(predictions))
