"""Who can be asked, who drops out, and who is too slow, in simulation.

McMahan 2017, §1, names what its experiments leave out: "client availability that correlates with the local data
distribution in complex ways" and "clients that never respond".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedquilt.base.rng import generator
from fedquilt.partition.population import Population
from fedquilt.simulate.presence import Absence, Asked

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DropOut:
    """Every client that is asked drops out with the same probability, independently in every round and slot.

    >>> asked = Asked(1, seed=1, clients=np.array([4, 7, 4]), examples=np.array([5, 5, 5]))
    >>> DropOut(0.999999)(asked).reasons
    {0: 'dropped out', 1: 'dropped out', 2: 'dropped out'}
    """

    probability: float

    def __call__(self, asked: Asked) -> Absence:
        """Draw who drops out."""
        indices = enumerate(asked.clients.tolist())
        return Absence({index: "dropped out" for index, client in indices if self._drops(asked, client, index)})

    def _drops(self, asked: Asked, client: int, index: int) -> bool:
        rng = generator(asked.seed, "drop out", asked.round, client, asked.first_slot + index)
        return bool(rng.random() < self.probability)


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

    def probabilities(self, round_: int, classes: int) -> Floats:
        """Return the probability for clients of every class."""
        phase = (round_ % self.period) / self.period - np.arange(classes) / classes
        return self.low + (self.high - self.low) * (1 + np.cos(2 * math.pi * phase)) / 2
