"""What a run simulates of its clients: who can be asked, who answers in time, and whose answers are corrupt.

What a run leaves out this way is not a fault of anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedquilt.algorithm.algorithm import Select
from fedquilt.base.errors import SpecError
from fedquilt.base.records import describe
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.partition.population import Population

Available = Callable[[int, Population, int], npt.NDArray[np.bool_]]
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

OverSelect = Callable[[Select, Indices, Indices, np.random.Generator], Indices]
"""(the method's own select, sizes of the clients to choose from, whom it chose, generator) -> whom the server asks."""

Tamper = Callable[[Tensor, np.random.Generator], Tensor]
"""(a client's update, generator) -> what it sends instead."""


@dataclass(frozen=True)
class Corruption:
    """What corrupt clients do to their labels before training, or to their update before sending it."""

    share: float
    labels: Callable[[Tensor, int], Tensor] | None = None
    update: Tamper | None = None

    def hits(self, client: int, population: int, seed: int) -> bool:
        """Say whether a client is corrupt."""
        return client in corrupt_clients(self.share, population, seed)


@lru_cache(maxsize=16)
def corrupt_clients(share: float, population: int, seed: int) -> frozenset[int]:
    """Return the corrupt clients: `share` of all, rounded.

    >>> len(corrupt_clients(0.2, 10, seed=1)), corrupt_clients(0.2, 10, 1) <= corrupt_clients(0.4, 10, 1)
    (2, True)
    """
    order = generator(seed, "corrupt").permutation(population)
    return frozenset(order[: round(share * population)].tolist())


@dataclass(frozen=True)
class Simulation:
    """What is simulated of a run's clients; `name` is that of the function that made it.

    - `available`: who can be asked in a round;
    - `over_select`: asks more clients than the method needs;
    - `drop_out`, then `too_late`: who is asked and does not answer, or not in time;
    - `corruption`: what corrupt clients do to their labels or their updates.
    """

    name: str = ""
    available: Available | None = None
    over_select: OverSelect | None = None
    drop_out: tuple[Absent, ...] = ()
    too_late: tuple[Absent, ...] = ()
    corruption: tuple[Corruption, ...] = ()

    @property
    def absent(self) -> tuple[Absent, ...]:
        """The rules of who does not answer. A server that takes the first answers takes those of clients that answer."""
        return self.drop_out + self.too_late

    @property
    def needs_classes(self) -> bool:
        """Whether the server must know which classes clients hold."""
        return isinstance(self.available, ByClass) and self.available.needs_classes

    def relabel_of(self, client: int, clients: int, seed: int) -> Callable[[Tensor, int], Tensor] | None:
        """Return what a client makes of its labels, if it is one of the corrupt ones; `clients` is how many there are."""
        for corruption in self.corruption:
            if corruption.labels is not None and corruption.hits(client, clients, seed):
                return corruption.labels
        return None

    def tamper_of(
        self, client: int, clients: int, seed: int, key: tuple[int, int, int]
    ) -> Callable[[Tensor], Tensor] | None:
        """Return what a client does to its update before it sends it, if it is one of the corrupt ones."""
        if not self.corruption:
            return None
        hit = [
            (number, corruption.update)
            for number, corruption in enumerate(self.corruption)
            if corruption.update is not None and corruption.hits(client, clients, seed)
        ]
        return partial(_tampered, hit, seed, key) if hit else None


NOTHING = Simulation()


def combined(simulations: Iterable[Simulation]) -> Simulation:
    """Return one simulation that does what several do; two that set the same thing to different values are an error.

    Corruption is the exception: it may be stacked.

    >>> from fedquilt import corrupt, dropout
    >>> both = combined([dropout(probability=0.1), corrupt(share=0.2), corrupt(share=0.3)])
    >>> len(both.drop_out), len(both.corruption)
    (1, 2)
    >>> combined([dropout(probability=0.1), dropout(probability=0.2)])
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: dropout is applied twice, with different values: use one of them
    """
    parts: dict[str, Simulation] = {}
    found = list(simulations)
    for simulation in found:
        before = parts.setdefault(simulation.name, simulation)
        if not simulation.corruption and describe(before) != describe(simulation):
            raise SpecError(f"{simulation.name} is applied twice, with different values: use one of them")
    once = [simulation for simulation in parts.values() if not simulation.corruption]
    return Simulation(
        available=_one(once, "available", "who can be asked"),
        over_select=_one(once, "over_select", "how many more are asked"),
        drop_out=tuple(rule for simulation in once for rule in simulation.drop_out),
        too_late=tuple(rule for simulation in once for rule in simulation.too_late),
        corruption=tuple(each for simulation in found for each in simulation.corruption),
    )


def _tampered(hit: Sequence[tuple[int, Tamper]], seed: int, key: tuple[int, int, int], delta: Tensor) -> Tensor:
    for number, change in hit:
        delta = change(delta, generator(seed, "corruption", *key, number))
    return delta


def _one(simulations: list[Simulation], part: str, words: str) -> Any:
    setting = [simulation for simulation in simulations if getattr(simulation, part) is not None]
    if len(setting) > 1:
        names = " and ".join(simulation.name for simulation in setting)
        raise SpecError(f"{names} both set `{part}` ({words}): use one of them")
    return getattr(setting[0], part) if setting else None
