"""A trial: one run of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedquilt.experiment.spec import Spec


@dataclass(frozen=True)
class Trial:
    """One run of an experiment, in a folder of its own.

    - `name`: of its folder below the experiment's; unique, and the same from session to session.
    - `cell`: its case on each axis of the experiment, in their order.
    - `tuned`, `repeated`, `derived`: the values of the keys that are tuned, repeated and derived here.
    - `fold`: which fold of the training data it leaves out for validation, in cross-validation.
    """

    name: str
    cell: tuple[str, ...]
    tuned: dict[str, Any]
    repeated: dict[str, Any]
    fold: int | None
    spec: Spec
    derived: dict[str, float]
