"""Clients that take their time: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data.

The paper (2017) assumes rounds in step; a round then lasts as long as its slowest client. Two remedies: a deadline, and
asking more clients than are needed (over-selection), so that the first to answer are enough.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedquilt.algorithm.parts.selection import AskMore
from fedquilt.base.arguments import NonNegative, Positive, PositiveOrInfinite
from fedquilt.base.registry import simulations
from fedquilt.simulate.rules import Slowness
from fedquilt.simulate.simulation import Simulation

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
