"""FedNova: Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization (2020).

Clients that take more local steps pull the average towards themselves. Every update is therefore divided by its number of
steps a_k, and the mean multiplied by the mean number: Δ = (Σ p_k a_k) · Σ p_k (Δ_k / a_k), p_k = n_k / n over those who
reported. With momentum ρ at the clients, a_k counts a gradient's echo in later steps (the paper's ‖a‖₁).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.algorithm import Algorithm, ExactMean, Exchange, Parting, Trained, Upload, Visit, add_exchange, claim
from fedquilt.algorithm.updates import ClientUpdate, Cohort
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import wrappers
from fedquilt.compute.layout import Layout, Tensors

NAME = "fed_nova"

MOST_STEPS = 2.0**40
"""Local steps that a client may claim, at most. Divided by fewer than 1, an update could be too large to be summed."""


@wrappers.register
def fed_nova(algorithm: Algorithm) -> Algorithm:
    """Normalise updates by their number of local steps (Wang 2020).

    Where all clients take the same number of steps this is the wrapped method. Eight bytes go up besides the update.

    >>> from fedquilt import fed_avg
    >>> fed_nova(fed_avg()).name
    'fed_avg'
    """
    if algorithm.local.keep:
        raise SpecError("fed_nova: needs momentum that is reset in every round: remove keep_momentum")
    return claim(add_exchange(algorithm, Exchange(NAME, end=_end, uploads=_uploads)), NAME, reduce=NormalisedMean)


def _end(visit: Visit, trained: Trained) -> Parting:
    return Parting(extra_upload={"steps": torch.tensor([trained.effective_steps], dtype=torch.float64)})


def _uploads(layout: Layout, broadcast: Tensors) -> dict[str, Upload]:
    # A single step may come out a little below 1, as a sum of powers of the momentum.
    return {"steps": Upload((1,), torch.float64, least=1 - 2.0**-20, limit=MOST_STEPS)}


class NormalisedMean:
    """The mean of updates per step, times the mean number of steps."""

    def __init__(self, cohort: Cohort) -> None:
        self._mean = ExactMean(cohort.parameters, cohort.weight)
        self._steps: dict[int, tuple[float, float]] = {}

    def add(self, update: ClientUpdate) -> None:
        """Take in one update."""
        extra_upload: Tensors = update.extra_upload[NAME]  # type: ignore[assignment]
        steps = float(extra_upload["steps"])
        self._mean.add(update.slot, update.delta / steps, update.weight)
        self._steps[update.slot] = (steps, update.weight)

    def finish(self) -> Tensor | None:
        """Return the normalised mean."""
        mean = self._mean.finish()
        if mean is None:
            return None
        heard = [self._steps[slot] for slot in sorted(self._steps)]
        steps = math.fsum(steps * weight for steps, weight in heard) / math.fsum(weight for _, weight in heard)
        return mean * steps
