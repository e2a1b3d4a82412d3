"""What is tuned: keys whose best value is taken in every cell, and by which data the best one is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedquilt.base.errors import SpecError
from fedquilt.base.text import short
from fedquilt.experiment.design.search import Values, tuned_values

BY: tuple[Literal["validation", "test"], ...] = ("validation", "test")


@dataclass(frozen=True)
class Tuning:
    """Keys that are tuned, and how the best values are chosen.

    - `by`: "validation", on examples held out from clients' training data; or "test", as many papers did.
    - `keys`: the values that are tried, or the ranges that are searched; a case may have more, or others.
    - `folds`: of cross-validation; the chosen values are then trained again on all training data.
    - `race`: whether trials that cannot be the best any more are given up, where a cell shows the rounds to a target.
    """

    by: Literal["validation", "test"]
    keys: dict[str, Values]
    folds: int | None = None
    race: bool = True


def read_tuning(table: object, source: str) -> Tuning | None:
    """Read the table `[tune]`."""
    where = f"{source}: [tune]"
    if table is None:
        return None
    if not isinstance(table, dict):
        raise SpecError(f"{where}: must be a table, got {short(table)}")
    by, folds, race = table.get("by"), table.get("folds"), table.get("race", True)
    if by not in BY:
        raise SpecError(
            f'{where} by: say by which accuracy the best values are chosen, "validation" or "test", got {short(by)}'
        )
    if folds is not None and (type(folds) is not int or not 2 <= folds <= 1000):
        raise SpecError(f"{where} folds: must be a whole number from 2 to 1000, got {short(folds)}")
    if folds is not None and by != "validation":
        raise SpecError(f'{where} folds: cross-validation chooses by = "validation", got {short(by)}')
    if type(race) is not bool:
        raise SpecError(f"{where} race: must be true or false, got {short(race)}")
    return Tuning(by, tuned_values(_rest(table), where), folds, race)


def _rest(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in ("by", "folds", "race")}
