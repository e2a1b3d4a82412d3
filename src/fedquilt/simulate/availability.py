"""Clients that are available at some times only: McMahan et al., Communication-Efficient Learning … (2017).

§1: "client availability that correlates with the local data distribution in complex ways (e.g., phones from speakers of
American English will likely be plugged in at different times than speakers of British English)".
"""

from __future__ import annotations

from fedquilt.base.arguments import Count, Fraction
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import simulations
from fedquilt.simulate.rules import ByClassAndHour
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
