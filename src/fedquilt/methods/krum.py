"""Krum and Multi-Krum.

Blanchard, El Mhamdi, Guerraoui and Stainer, Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent (2017).

§4: s(i) = Σ ‖V_i − V_j‖² over the n − f − 2 vectors closest to V_i; Krum is the vector with the lowest score, Multi-Krum
the mean of several with the lowest scores. Its resilience is shown for 2f + 2 < n.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.held import Held
from fedquilt.algorithm.parts.robust import krum_choice
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
