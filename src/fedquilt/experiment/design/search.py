"""Searching for tuned values instead of trying all of them: `[search]` says how, and `[tune]` over which lists and ranges.

[tune]
by = "validation"
"method.lr" = { low = 0.001, high = 1.0, log = true }
"method.epochs" = { low = 1, high = 10 }        # whole numbers
"method.batch" = [10, 20, 50]

[search]
trials = 30
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from fedquilt.base.arguments import Count, Finite, Seed
from fedquilt.base.errors import SpecError
from fedquilt.base.text import short, visible
from fedquilt.experiment.design.checked import checked_table
from fedquilt.experiment.design.keys import lists

EDGE = 0.02
"""The share of a range, at either end, in which its best value is said to be at the edge."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`: whole ones where both are; with `log`, each tenfold is as likely as another."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether it has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at_edge(self, value: float) -> bool:
        """Say whether a value is close to an end.

        >>> Range(0.001, 1.0, log=True).at_edge(0.0011), Range(0.001, 1.0, log=True).at_edge(0.02), Range(1, 9).at_edge(9)
        (True, False, True)
        """
        low, high, position = (math.log(each) if self.log else each for each in (self.low, self.high, value))
        return not EDGE <= (position - low) / (high - low) <= 1 - EDGE


Values = list[Any] | Range
"""What a tuned key can be: one of a list, or any number of a range."""


@dataclass(frozen=True)
class Search:
    """The table `[search]`: a tree-structured Parzen estimator (TPE) proposes tuned values, for every cell by itself.

    - `trials`: proposals for a cell, each of which is run with all repeats.
    - `seed`: of the proposals, which are the same from one session to another, however many trials run at once.
    - `at_once`: how many are proposed before their results are looked at.
    - `prune`: give a proposal up once it is worse than half of the finished ones were after as many rounds.
    """

    trials: Count
    seed: Seed = 0
    at_once: Annotated[int, Field(ge=1, le=1000)] = 4
    prune: bool = True


def read_search(table: object, source: str) -> Search | None:
    """Read the table `[search]`."""
    where = f"{source}: [search]"
    if table is None:
        return None
    if not isinstance(table, dict):
        raise SpecError(f"{where}: must be a table, got {short(table)}")
    dotted = next((key for key, value in table.items() if "." in key or isinstance(value, dict | list)), None)
    if dotted is not None:
        raise SpecError(f"{where} {dotted}: values to search are written in [tune]; here is only how: trials, seed, …")
    return Search(**checked_table(Search, table, where))


def tuned_values(table: object, where: str) -> dict[str, Values]:
    """Check what is tuned over: lists of values, and ranges.

    >>> tuned_values({"method.batch": [10, 50], "method": {"lr": {"low": 0.1, "high": 1.0}}}, "[tune]")
    {'method.batch': [10, 50], 'method.lr': Range(low=0.1, high=1.0, log=False)}
    """
    if not isinstance(table, Mapping):
        raise SpecError(f"{where}: must be a table of lists, got {short(table)}")
    found: dict[str, Values] = {}
    for name, value in table.items():
        nested = isinstance(value, dict) and "." not in name
        for key, each in {f"{name}.{key}": each for key, each in value.items()}.items() if nested else [(name, value)]:
            if key in found:
                raise SpecError(f'{where} "{visible(key, 80)}": is given twice')
            if isinstance(each, dict):
                lists({key: [0]}, where)  # what it says of the key holds of ranges too
                found[key] = _range(each, f'{where} "{key}"')
            else:
                found |= lists({key: each}, where)
    return found


def _range(table: Mapping[str, Any], where: str) -> Range:
    found = Range(**checked_table(_ends, table, where))
    if found.low >= found.high:
        raise SpecError(f"{where}: low must be below high, got {short(dict(table))}")
    if found.log and found.low <= 0:
        raise SpecError(f"{where}: a range with log = true begins above 0, got low = {found.low}")
    return found


def _ends(low: int | Finite, high: int | Finite, log: bool = False) -> None:
    """Name the keys of a range."""
