"""Who can be asked and who answers in time, in simulation. What a run leaves out this way is not a fault of anybody's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedquilt.base.types import Indices

if TYPE_CHECKING:
    from fedquilt.partition.population import Population


Available = Callable[[int, "Population", int], npt.NDArray[np.bool_]]
"""(round, all clients, seed) -> which of them can be asked."""


@runtime_checkable
class ByClass(Protocol):
    """A rule that says whether it goes by the classes that clients hold; others are not told them."""

    @property
    def needs_classes(self) -> bool:
        """Whether it asks for `population.classes_held`."""


@dataclass(frozen=True, eq=False)
class Asked:
    """The cohort of a round before it is asked: its clients by slot, with the examples that each will process.

    `wanted` is how many answers the method needs, where the server asks more (nothing: all of them); `absent` are the
    places of those who are known not to answer, from the rules before.
    """

    round: int
    seed: int
    clients: Indices
    examples: Indices
    first_slot: int = 0
    wanted: int | None = None
    absent: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Absence:
    """Who does not answer, by index among those asked, and why; and how long the round takes, where that is simulated."""

    reasons: Mapping[int, str] = field(default_factory=dict)
    seconds: float | None = None


Absent = Callable[[Asked], Absence]
