"""Values that may change from round to round. Rounds count from 1.

McMahan 2017 (§3) decays the learning rate, and suggests decaying E or growing B as training converges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Schedule:
    """`initial · factor^⌊(round − 1) / every⌋`, kept between `least` and `most`; with a factor of 1, a constant.

    McMahan 2017 (Figure 4) decays the learning rate by 0.9934 (FedSGD) or 0.99 (FedAvg) a round on CIFAR-10.

    >>> Schedule(0.1)(50), round(Schedule(0.1, factor=0.5)(3), 6), Schedule(20, factor=0.5, least=1)(100)
    (0.1, 0.025, 1)
    """

    initial: float
    factor: float = 1.0
    every: int = 1
    least: float = 0.0
    most: float = math.inf

    def __post_init__(self) -> None:
        if not (self.initial > 0 and 0 < self.factor < math.inf and self.every >= 1 and 0 <= self.least <= self.most):
            raise ValueError(
                "initial and factor must be above 0, every must be at least 1, and `least` must be at most `most`"
            )

    def __call__(self, round_: int) -> float:
        """Return the value of a round."""
        if self.factor == 1.0:
            return self.initial
        exponent = math.log(self.factor) * ((round_ - 1) // self.every)
        grown = self.initial * self.factor ** ((round_ - 1) // self.every) if abs(exponent) < 600 else math.inf
        grown = 0.0 if exponent <= -600 else grown
        return min(max(grown, self.least), self.most)


@dataclass(frozen=True)
class Stages:
    """A value that changes at given rounds: `stages` are pairs of a first round and the value from there on.

    >>> [Stages(((1, 0.1), (100, 0.01)))(round_) for round_ in (1, 99, 100)]
    [0.1, 0.1, 0.01]
    """

    stages: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        firsts = [first for first, _ in self.stages]
        if not firsts or firsts[0] != 1 or firsts != sorted(set(firsts)) or any(v <= 0 for _, v in self.stages):
            raise ValueError("stages must be pairs [first round, value], the first of them at round 1, values above 0")

    def __call__(self, round_: int) -> float:
        """Return the value of a round."""
        return [value for first, value in self.stages if first <= round_][-1]


Value = float | Schedule | Stages
"""A number, or one that changes over rounds."""


def scheduled(value: Value | Mapping[str, Any]) -> Schedule | Stages:
    """Return the schedule that a number, a schedule or a table of a spec stands for.

    >>> scheduled(0.1)
    Schedule(initial=0.1, factor=1.0, every=1, least=0.0, most=inf)
    >>> scheduled({"stages": [[1, 0.1], [50, 0.01]]})(60)
    0.01
    """
    if isinstance(value, Schedule | Stages):
        return value
    if not isinstance(value, Mapping):
        return Schedule(value)
    if "stages" in value:
        if not isinstance(value["stages"], list | tuple) or not all(_is_stage(pair) for pair in value["stages"]):
            raise ValueError("stages must be pairs [first round, value]")
        return Stages(tuple((first, float(amount)) for first, amount in value["stages"]))
    if not all(_is_number(number) for number in value.values()):
        raise ValueError("its values must be numbers")
    return Schedule(**value)


def _is_stage(pair: object) -> bool:
    return (
        isinstance(pair, list | tuple) and len(pair) == 2 and type(pair[0]) is int and all(_is_number(n) for n in pair)
    )


def _is_number(value: object) -> bool:
    """Say whether it is a number, and not one that is too large to compute with."""
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def constant_or_scheduled(value: Value | Mapping[str, Any]) -> Value:
    """Return a number as it is, and a table as the schedule it stands for."""
    return scheduled(value) if isinstance(value, Mapping) else value


def whole(value: float) -> int:
    """Round to the nearest whole number, halves up, at least 1: of epochs, and of examples per batch.

    >>> whole(2.5), whole(0.2)
    (3, 1)
    """
    return max(math.floor(value + 0.5), 1)
