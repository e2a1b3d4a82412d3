"""The loss on the line between two trained models: whether averaging them makes sense (McMahan 2017, Figure 1).

Two models w and w' that were trained apart are averaged as θ·w + (1 − θ)·w', for θ from −0.2 to 1.2. Trained from different
first values, their mean is far worse than either; trained from the same, it is better than both on all training data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedquilt.compute.layout import ModelState
from fedquilt.round.evaluation import SplitName
from fedquilt.round.federation import Federation

FIRST, LAST, POINTS = -0.2, 1.2, 50
"""As in the figure: 50 evenly spaced values of θ from −0.2 to 1.2."""


@dataclass(frozen=True)
class Interpolation:
    """Loss and, where there are classes, accuracy of θ·w + (1 − θ)·w' for every θ; w is at θ = 1, w' at θ = 0.

    `best_parent` is the lower loss of the two models themselves.
    """

    theta: tuple[float, ...]
    loss: tuple[float, ...]
    accuracy: tuple[float | None, ...]
    best_parent: float


def between(first: ModelState, second: ModelState, theta: float) -> ModelState:
    """Return θ·first + (1 − θ)·second; counts, which have no mean, are the first's.

    >>> import torch
    >>> models = [ModelState(torch.tensor([x]), torch.zeros(0), torch.zeros(0)) for x in (1.0, 3.0)]
    >>> between(*models, theta=0.25).vector.tolist()
    [2.5]
    """
    mixed = [
        (theta * one.double() + (1 - theta) * other.double()).to(one.dtype)
        for one, other in ((first.vector, second.vector), (first.buffers, second.buffers))
    ]
    return ModelState(mixed[0], mixed[1], first.counters)


def interpolate(
    federation: Federation,
    first: ModelState,
    second: ModelState,
    split: SplitName = "train",
    theta: Sequence[float] | None = None,
) -> Interpolation:
    """Evaluate the models on the line between two, on the whole of a split."""
    places = np.linspace(FIRST, LAST, POINTS).tolist() if theta is None else list(theta)
    losses, accuracies = zip(
        *(_evaluated(federation, between(first, second, each), split) for each in places), strict=True
    )
    parents = [_evaluated(federation, model, split)[0] for model in (first, second)]
    return Interpolation(tuple(places), losses, accuracies, min(parents))


def _evaluated(federation: Federation, model: ModelState, split: SplitName) -> tuple[float, float | None]:
    found = federation.evaluator.evaluate_all(model, split)
    return found.loss, found.accuracy
