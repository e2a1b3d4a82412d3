"""The first of a round's three functions: who takes part, in which slot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.exact import LARGEST_WEIGHT
from fedquilt.algorithm.state import Group
from fedquilt.algorithm.updates import Cohort
from fedquilt.base.errors import OverflowInSumError
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.partition.population import Population
from fedquilt.simulate.simulation import NOTHING, Asked, Simulation


@dataclass(frozen=True, eq=False)
class Plan:
    """A round before it runs: who takes part, in which slot, and the weight that the whole cohort would have.

    `population` counts the clients that could take part: those of the group, where there are several. Slots count on over
    the groups of a run, from `first_slot`; `numbers` are the slots where they do not follow one another. `absent` are those
    who are asked and, in simulation, will not answer; `seconds` is how long the round takes there. `wanted` is how many
    answers are enough, where more clients are asked than the method needs. `sums` says that nobody
    needs single updates: an engine may answer with exact sums over several clients.
    """

    round: int
    seed: int
    clients: Indices
    sizes: Indices
    weight: float
    population: int
    first_slot: int = 0
    absent: Mapping[int, str] = field(default_factory=dict)
    seconds: float | None = None
    numbers: Indices | None = None
    wanted: int | None = None
    sums: bool = False

    @cached_property
    def slots(self) -> list[int]:
        """The slots that will be run."""
        return [slot for slot in self.client_of if slot not in self.absent]

    @cached_property
    def client_of(self) -> dict[int, int]:
        """The client in every slot."""
        return dict(zip(self._numbered, self.clients.tolist(), strict=True))

    @cached_property
    def _size_of(self) -> dict[int, int]:
        return dict(zip(self._numbered, self.sizes.tolist(), strict=True))

    @property
    def _numbered(self) -> Iterable[int]:
        first = self.first_slot
        return range(first, first + len(self.clients)) if self.numbers is None else self.numbers.tolist()

    def size_of(self, slot: int) -> int:
        """The number of examples of the client in a slot."""
        return self._size_of[slot]

    def cohort(self, parameters: int) -> Cohort:
        """Describe the cohort to those who will take in its answers."""
        return Cohort(parameters, self.weight, len(self.clients), self.population)


def plan(
    algorithm: Algorithm,
    group: Group,
    population: Population,
    seed: int,
    number: int = 0,
    first_slot: int = 0,
    simulation: Simulation = NOTHING,
) -> Plan:
    """Draw the cohort of a group's next round; `number` is the group's index among several."""
    round_ = group.state.round + 1
    key = (round_, number) if number else (round_,)
    members = _members(simulation, group, population, round_, seed)
    sizes, rng = population.sizes if members is None else population.sizes[members], generator(seed, "select", *key)
    chosen = algorithm.select(sizes, rng) if len(sizes) else np.zeros(0, dtype=np.int64)
    more = simulation.over_select
    asked = chosen if more is None else more(algorithm.select, sizes, chosen, rng)
    clients = asked if members is None else members[asked]
    sizes, weight = population.sizes[clients], planned_weight(algorithm, population.sizes[clients])
    absent, seconds = _absent(
        algorithm, simulation, Asked(round_, seed, clients, sizes, first_slot, wanted=len(chosen))
    )
    reached = len(population) if group.clients is None else len(group.clients)
    return Plan(round_, seed, clients, sizes, weight, reached, first_slot, absent, seconds, wanted=len(chosen))


def weights_by_size(algorithm: Algorithm, sizes: Indices) -> dict[int, float]:
    """Return the weight of a client of every size that occurs."""
    return {size: float(algorithm.weigh(size)) for size in set(sizes.tolist())}


def planned_weight(algorithm: Algorithm, sizes: Indices) -> float:
    """Return the weight of a whole cohort of clients of these sizes."""
    by_size = weights_by_size(algorithm, sizes)
    weights = (by_size[size] for size in sizes.tolist())
    usable = [weight for weight in weights if math.isfinite(weight) and weight > 0]
    if sum(usable) >= LARGEST_WEIGHT:
        raise OverflowInSumError(f"the weights of a round's clients add up to {sum(usable):g}; the limit is 2^60")
    return math.fsum(usable)


def _members(simulation: Simulation, group: Group, population: Population, round_: int, seed: int) -> Indices | None:
    """Return who can be asked; None is everybody, of whom no list is made: they may be a million."""
    if simulation.available is None:
        return group.clients
    available = simulation.available(round_, population, seed)
    if group.clients is None:
        return np.flatnonzero(available)
    return group.clients[available[group.clients]]


def _absent(algorithm: Algorithm, simulation: Simulation, asked: Asked) -> tuple[dict[int, str], float | None]:
    """Return who does not answer, by slot, and how long the round takes; `asked.examples` are the clients' sizes here."""
    reasons: dict[int, str] = {}
    seconds: float | None = None
    if not simulation.absent:
        return reasons, seconds
    sizes, rng = asked.examples, generator(asked.seed, "size of the work")
    work = {int(size): len(algorithm.sample(int(size), rng, asked.round).order) for size in np.unique(sizes) if size}
    examples = np.asarray([work.get(int(size), 0) for size in sizes], dtype=np.int64)
    for rule in simulation.absent:
        absence = rule(replace(asked, examples=examples, absent=frozenset(reasons)))
        reasons = {**absence.reasons, **reasons}
        seconds = absence.seconds if seconds is None else seconds
    return {asked.first_slot + index: reasons[index] for index in sorted(reasons)}, seconds
