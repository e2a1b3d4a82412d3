"""Robust reductions: what a cohort's updates have in common, whatever a minority of them says.

- `coordinate_median`, `coordinate_trimmed_mean`: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal
  Statistical Rates (2018), Definitions 1 and 2.
- `krum_choice`: Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent (2017), §4.
- `Bounded`: Sun et al., Can You Really Backdoor Federated Learning? (2019), norm thresholding of updates.
- `geometric_median_of`: Pillutla, Kakade and Harchaoui, Robust Aggregation for Federated Learning (2022), by the smoothed
  Weiszfeld algorithm.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import torch
from torch import Tensor

from fedquilt.algorithm.cohort import Cohort, Reduce
from fedquilt.algorithm.parts.held import Updates, blocks, squared_distances, weighted_mean
from fedquilt.algorithm.parts.norms import clip_by_norm
from fedquilt.algorithm.transform import At
from fedquilt.algorithm.updates import ClientUpdate


def coordinate_median(updates: Updates) -> Tensor:
    """Return the median in every coordinate, unweighted; of an even number, the mean of the two middle values.

    >>> coordinate_median(Updates([torch.tensor([x, -x]) for x in (1.0, 2.0, 9.0)], [1.0, 1.0, 1.0]))
    tensor([ 2., -2.])
    """
    return _mean_of_ranks(updates.deltas, (len(updates.deltas) - 1) // 2)


def coordinate_trimmed_mean(trim: float, updates: Updates) -> Tensor:
    """Return the mean, in every coordinate, without the ⌊trim·m⌋ smallest and as many largest values; unweighted.

    >>> coordinate_trimmed_mean(0.25, Updates([torch.tensor([x]) for x in (1.0, 2.0, 4.0, 99.0)], [1.0] * 4))
    tensor([3.])
    """
    return _mean_of_ranks(updates.deltas, trimmed(trim, len(updates.deltas)))


def trimmed(trim: float, clients: int) -> int:
    """Return how many values are dropped at either end: ⌊trim·m⌋, and 29 of 100 for 0.29, whose product is 28.99….

    >>> trimmed(0.29, 100), trimmed(0.1, 9), trimmed(0.49, 2)
    (29, 0, 0)
    """
    return math.floor(trim * clients + 1e-9)


def _mean_of_ranks(deltas: list[Tensor], dropped: int) -> Tensor:
    means = []
    for block in blocks(deltas):
        block.numpy().sort(axis=0)  # in place; much faster than torch's sort along a short axis
        means.append(block[dropped : len(deltas) - dropped].double().mean(dim=0).float())
    return torch.cat(means)


def krum_choice(corrupt: int, selected: int, updates: Updates) -> Tensor | None:
    """Return the equal mean of the updates that are closest to their neighbours.

    The score of an update is the sum of its squared distances to the m − f − 2 nearest others, f being `corrupt`; the
    `selected` with the lowest scores are taken, ties by slot. Where too few reported there is no result, and a warning.

    >>> krum_choice(0, 1, Updates([torch.tensor([x]) for x in (0.0, 1.0, 3.0, 99.0)], [1.0] * 4))  # scores: 10, 5, 13, …
    tensor([1.])
    """
    clients = len(updates.deltas)
    if selected > clients:
        _too_few(f"{clients} clients reported, of whom selected = {selected} are to be averaged; select fewer")
        return None
    if clients == 1 and not corrupt:  # nobody to compare with, and nobody suspected
        return updates.deltas[0]
    neighbours = clients - corrupt - 2
    if neighbours < 1:
        _too_few(
            f"{clients} clients reported, of whom corrupt = {corrupt} may be corrupt: an update is scored by its "
            f"m − f − 2 = {neighbours} nearest others, which must be 1 or more; at least {corrupt + 3} are needed "
            f"({2 * corrupt + 3} for the paper's guarantee)"
        )
        return None
    distances = squared_distances(updates.deltas).fill_diagonal_(math.inf)
    scores = distances.sort(dim=1).values[:, :neighbours].sum(dim=1)
    chosen = sorted(scores.argsort(stable=True)[:selected].tolist())
    return weighted_mean([updates.deltas[index] for index in chosen], torch.ones(selected))


def _too_few(why: str) -> None:
    text = f"krum: {why}, or let more clients take part. Until then such a round is not applied"
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def geometric_median_of(iterations: int, tolerance: float, smoothing: float, updates: Updates) -> Tensor:
    """Return the point with the least Σ α_k·‖v − w_k‖, the α_k being the shares of the weights.

    From the weighted mean: β_k = α_k / max(ν, ‖v − w_k‖), v ← Σ β_k·w_k / Σ β_k, with ν the `smoothing`. Every v is a mean
    Σ c_k·w_k of the updates, so that it is enough to know the updates' distances D_kj = ‖w_k − w_j‖²:
    ‖v − w_k‖² = (Dc)_k − cᵀDc / 2. An iteration costs m² products, whatever the size of the model.

    It ends early when the sum's gradient is no longer than `tolerance`. That has no unit: each α_k·‖v − w_k‖ adds a vector
    of length α_k to it.

    >>> updates = Updates([torch.tensor([x, 0.0]) for x in (0.0, 1.0, 99.0)], [1.0, 1.0, 1.0])
    >>> geometric_median_of(1000, 1e-6, 1e-6, updates)  # on a line it is the median
    tensor([1., 0.])
    """
    alpha = torch.tensor(updates.weights, dtype=torch.float64)
    alpha /= alpha.sum()
    distances = squared_distances(updates.deltas)
    share = alpha
    for _ in range(iterations):
        reached = distances @ share
        away = (reached - share @ reached / 2).clamp_(min=0).sqrt_()
        beta = alpha / away.clamp_(min=smoothing)
        moved = beta / beta.sum() - share
        share = share + moved
        # v moves by −gradient / Σβ, and ‖Σ e_k·w_k‖² = −eᵀDe / 2 where Σ e_k = 0.
        step = (-(moved @ distances @ moved) / 2).clamp_(min=0).sqrt_()
        if step * beta.sum() <= tolerance:
            break
    return weighted_mean(updates.deltas, share)


class Bounded:
    """Shortens every update that is longer than `limit`, then reduces as `reduce` does."""

    def __init__(self, limit: float, reduce: Reduce, cohort: Cohort) -> None:
        """Make an empty fold of the wrapped kind."""
        self._clip = clip_by_norm(limit)
        self._fold = reduce(cohort)

    def add(self, update: ClientUpdate) -> None:
        """Take in one update, shortened if need be."""
        shortened, _ = self._clip.update({"model": update.delta}, {}, At({}, {}))
        self._fold.add(replace(update, delta=shortened["model"]))

    def finish(self) -> Tensor | None:
        """Return what the wrapped fold returns."""
        return self._fold.finish()
