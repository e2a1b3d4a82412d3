"""Krum and Multi-Krum.

Blanchard, El Mhamdi, Guerraoui and Stainer, Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent (2017).

§4: s(i) = Σ ‖V_i − V_j‖² over the n − f − 2 vectors closest to V_i; Krum is the vector with the lowest score, Multi-Krum
the mean of several with the lowest scores. Its resilience is shown for 2f + 2 < n.
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.reduction import Held, Updates, squared_distances, weighted_mean
from fedquilt.base.arguments import Count
from fedquilt.base.registry import wrappers

CorruptCount = Annotated[int, Field(ge=0)]


@wrappers.register
def krum(algorithm: Algorithm, corrupt: CorruptCount = 0, selected: Count = 1) -> Algorithm:
    """Take the update, or the few, that are closest to their neighbours (Blanchard 2017).

    - `corrupt` is the paper's f: how many of a round's clients may be corrupt. With m clients that reported, an update is
      scored by its m − f − 2 nearest others. Where fewer than f + 3 reported, the round is not applied, with a warning
      (but for one client alone with f = 0, whose update is taken). The paper's guarantee needs more, m ≥ 2f + 3; that is
      not checked.
    - `selected` is how many updates are averaged, every client counting the same; above 1 it is Multi-Krum. Where
      fewer reported, the round is not applied; more than m − f surely let a corrupt one in.

    Ties go to the lower slot. The server holds all of a round's updates at once.

    >>> from fedquilt import fed_avg
    >>> krum(fed_avg(fraction=0.5), corrupt=2, selected=3).applied.claims
    (('reduce', 'krum'),)
    """
    return claim(algorithm, "krum", reduce=partial(Held, partial(krum_choice, corrupt, selected)))


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
