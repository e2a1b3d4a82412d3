"""Clients that never respond: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data.

§1 names them among the issues of a deployed system (2017). The weights n_k / n are over those who do respond.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.base.arguments import BelowOne
from fedquilt.base.registry import simulations
from fedquilt.base.rng import generator
from fedquilt.simulate.simulation import NOTHING, Absence, Asked, Simulation


@simulations.register
def dropout(probability: BelowOne = 0.1) -> Simulation:
    """Let clients drop out of a round at random (McMahan 2017).

    Every client that is asked drops out with that probability, independently of the others and of other rounds; a client
    that fills several slots (`fed_vc`) does so for each. It has received the model, and sends nothing: it counts in
    `bytes_down`, and is named in the round's `absent`. If all drop out the model stays as it was. With a `probability` of 0
    nothing is simulated.

    >>> dropout(probability=0.2).drop_out
    (DropOut(probability=0.2),)
    """
    return Simulation("dropout", drop_out=(DropOut(probability),)) if probability else NOTHING


@dataclass(frozen=True)
class DropOut:
    """Every client that is asked drops out with the same probability, independently in every round and slot.

    >>> import numpy as np
    >>> asked = Asked(1, seed=1, clients=np.array([4, 7, 4]), examples=np.array([5, 5, 5]))
    >>> DropOut(0.999999)(asked).reasons
    {0: 'dropped out', 1: 'dropped out', 2: 'dropped out'}
    """

    probability: float

    def __call__(self, asked: Asked) -> Absence:
        """Draw who drops out."""
        reasons = {}
        for index, client in enumerate(asked.clients.tolist()):
            rng = generator(asked.seed, "drop out", asked.round, client, asked.first_slot + index)
            if rng.random() < self.probability:
                reasons[index] = "dropped out"
        return Absence(reasons)
