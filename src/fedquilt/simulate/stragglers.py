"""Clients that take their time: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data.

The paper (2017) assumes rounds in step; a round then lasts as long as its slowest client. Two remedies: a deadline, and
asking more clients than are needed (over-selection), so that the first to answer are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedquilt.algorithm.parts.selection import AskMore
from fedquilt.base.arguments import NonNegative, Positive, PositiveOrInfinite
from fedquilt.base.registry import simulations
from fedquilt.base.rng import generator
from fedquilt.base.types import Floats
from fedquilt.simulate.simulation import Absence, Asked, Simulation

Spread = Annotated[float, Field(ge=0, le=10)]


@simulations.register
def stragglers(
    seconds_per_example: Positive = 0.01,
    spread: Spread = 0.5,
    deadline: PositiveOrInfinite = float("inf"),
    over_select: NonNegative = 0.0,
) -> Simulation:
    """Simulate how long clients take, with a deadline and more clients asked than needed (McMahan 2017).

    - A client takes (examples that it processes in the round) × `seconds_per_example` × its own pace. The pace is
      exp(`spread`·N(0, 1)) and stays the same for the whole run; `spread=0` makes all clients equally fast.
    - Whoever takes longer than `deadline` seconds is left out of the round.
    - With `over_select` the server asks (1 + `over_select`)·m clients, where the method asks m, and takes the first m to
      answer; of equals, the one in the earlier slot. There may be fewer to ask; those of `fed_vc` may repeat.

    A round's `simulated_seconds` are the time of the slowest client that was taken, or the deadline, where somebody missed
    it and fewer than m answered in time. Nobody waits for those who drop out (`dropout`). Who is left out is named in
    `absent`. Nothing really waits; without deadline and over-selection, training is as without it, to the bit.

    >>> stragglers(deadline=60.0).too_late
    (Slowness(seconds_per_example=0.01, spread=0.5, deadline=60.0),)
    """
    return Simulation(
        "stragglers",
        over_select=AskMore(over_select) if over_select else None,
        too_late=(Slowness(seconds_per_example, spread, deadline),),
    )


@dataclass(frozen=True)
class Slowness:
    """A client takes (examples processed) × `seconds_per_example` × its own pace, and a round ends at a deadline.

    The pace is exp(`spread`·N(0, 1)), drawn once for a client. The server takes the first answers, as many as the method
    needs; it does not wait for those who dropped out.

    >>> asked = Asked(1, seed=1, clients=np.array([4, 7, 9]), examples=np.array([500, 1230, 900]))
    >>> absence = Slowness(0.01, spread=0.0, deadline=10.0)(asked)
    >>> dict(absence.reasons), absence.seconds
    ({1: 'missed the deadline: 12.3 s'}, 10.0)
    """

    seconds_per_example: float
    spread: float
    deadline: float

    def __call__(self, asked: Asked) -> Absence:
        """Say who is too late, and how long the round takes."""
        times = self.times(asked)
        waited_for = [index for index in range(len(times)) if index not in asked.absent]
        late = [index for index in waited_for if times[index] > self.deadline]
        in_time = sorted((index for index in waited_for if times[index] <= self.deadline), key=lambda i: (times[i], i))
        wanted = len(times) if asked.wanted is None else asked.wanted
        taken, too_many = in_time[:wanted], in_time[wanted:]
        reasons = {index: f"missed the deadline: {_short(times[index])} s" for index in late}
        reasons |= dict.fromkeys(too_many, f"not among the first {wanted}")
        waits = bool(late) and len(taken) < wanted
        return Absence(reasons, self.deadline if waits else max((float(times[index]) for index in taken), default=0.0))

    def times(self, asked: Asked) -> Floats:
        """Return the seconds that every client that is asked takes."""
        normals = [generator(asked.seed, "pace", client).standard_normal() for client in asked.clients.tolist()]
        pace: Floats = np.exp(self.spread * np.asarray(normals, dtype=np.float64))
        return asked.examples * self.seconds_per_example * pace


def _short(seconds: float) -> str:
    return np.format_float_positional(seconds, precision=3, unique=False, fractional=False, trim="-")
