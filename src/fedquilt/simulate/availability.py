"""Clients that are available at some times only: McMahan et al., Communication-Efficient Learning … (2017).

§1: "client availability that correlates with the local data distribution in complex ways (e.g., phones from speakers of
American English will likely be plugged in at different times than speakers of British English)".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedquilt.base.arguments import Count, Fraction
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import simulations
from fedquilt.base.rng import generator
from fedquilt.partition.population import Population
from fedquilt.simulate.simulation import Simulation


@simulations.register
def availability(period: Count = 24, low: Fraction = 0.1, high: Fraction = 0.9) -> Simulation:
    """Make clients available at times that depend on their data (McMahan 2017).

    A client whose most frequent class is c is available in round t with the probability
    low + (high − low)·(1 + cos 2π(t / period − c / classes)) / 2: clients of one class come and go together.

    The method's `fraction` C is then a share of the available clients: max(C·available, 1) of them are selected; of a
    `cohort`, at most as many as are available. In a round without available clients, nobody is selected and the model
    stays as it was.

    >>> availability(period=48).available
    ByClassAndHour(period=48, low=0.1, high=0.9)
    """
    if low > high:
        raise SpecError(f"availability: low: must be at most high, {high:g}, got {low:g}")
    return Simulation("availability", available=ByClassAndHour(period, low, high))


@dataclass(frozen=True)
class ByClassAndHour:
    """Client k can be asked in round t with p = low + (high − low)·(1 + cos 2π(t / period − c / classes)) / 2.

    c is the client's most frequent class: with the hours of a day as rounds, clients of one class are up at one time.

    >>> ByClassAndHour(24, low=0.0, high=1.0).probabilities(24, classes=4).round(3).tolist()
    [1.0, 0.5, 0.0, 0.5]
    """

    period: int
    low: float
    high: float

    @property
    def needs_classes(self) -> bool:
        """It goes by clients' most frequent classes."""
        return True

    def __call__(self, round_: int, population: Population, seed: int) -> npt.NDArray[np.bool_]:
        """Draw who can be asked; one generator serves all clients, so that a million of them cost milliseconds."""
        held = population.classes_held
        probability = self.probabilities(round_, held.classes)[held.commonest]
        return generator(seed, "available", round_).random(len(population)) < probability

    def probabilities(self, round_: int, classes: int) -> npt.NDArray[np.float64]:
        """Return the probability for clients of every class."""
        phase = (round_ % self.period) / self.period - np.arange(classes) / classes
        return self.low + (self.high - self.low) * (1 + np.cos(2 * math.pi * phase)) / 2
