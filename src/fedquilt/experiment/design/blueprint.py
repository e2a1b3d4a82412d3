"""Puts the tables of a trial together from what its experiment file says, in a fixed order.

The file's own tables come first; then the cases of the trial's cell, in the order of the axes; conditions; tuned and
repeated values; the scale; what the command line sets; and at last derived keys. A key that the file, the scale or the
command line gives for all cases is left out where the function of a case does not take it.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedquilt.base.text import visible
from fedquilt.experiment.design.axes import Axis, Change
from fedquilt.experiment.design.conditions import Condition
from fedquilt.experiment.design.formula import Formula
from fedquilt.experiment.design.keys import VALUES, assign, folder_name, label, takes
from fedquilt.experiment.design.search import Search, Values
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.design.tuning import Tuning
from fedquilt.experiment.spec import check_spec
from fedquilt.experiment.toml import Table

MOST_TRIALS = 20_000


@dataclass(frozen=True)
class Blueprint:
    """What an experiment file says, read and checked; see `trial`."""

    source: str
    folder: Path | None
    base: Table
    axes: tuple[Axis, ...]
    conditions: tuple[Condition, ...]
    tuning: Tuning | None
    repeat: dict[str, list[Any]]
    derive: dict[str, Formula]
    scale: Table
    scale_name: str | None
    scale_tunes: frozenset[str]
    sets: Table
    shortened: dict[str, str]
    search: Search | None = None

    @property
    def repeats(self) -> int:
        """How often each cell is repeated."""
        return len(next(iter(self.repeat.values()), [None]))

    def tuned_keys(self) -> list[str]:
        """Return the keys of which several values are tried in some cell."""
        tuned = (item for cell in self.cells() for item in self.tuned(cell).items())
        return list(dict.fromkeys(key for key, values in tuned if not isinstance(values, list) or len(values) > 1))

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Go through the cells that are not left out."""
        for cell in itertools.product(*(axis.cases for axis in self.axes)):
            if not any(condition.skip and condition.holds(cell) for condition in self.conditions):
                yield cell

    def tuned(self, cell: Sequence[str]) -> dict[str, Values]:
        """Return what is tuned in a cell: keys that its function takes and that its case does not set by itself."""
        tables = self.plain(cell)
        own = self._own_lists(cell)
        fixed = {key for change in self._changes(cell) for key in change.keys}
        return {
            key: values
            for key, values in self._lists(cell).items()
            if key in own or (key not in fixed and key not in self.repeat and takes(tables, key) is not False)
        }

    def combinations(self, cell: Sequence[str]) -> Iterator[Table]:
        """Go through the combinations of tuned values in a cell; none that are searched for are known beforehand."""
        if self.search is not None:
            return
        lists = {key: values for key, values in self.tuned(cell).items() if isinstance(values, list)}
        for values in itertools.product(*lists.values()):
            yield dict(zip(lists, values, strict=True))

    def count(self) -> int:
        """Count the trials, before any is made."""
        folds = self.tuning.folds if self.tuning is not None else None
        if self.search is not None:
            return self.search.trials * self.repeats * sum(1 for _ in self.cells())
        lists = ([each for each in self.tuned(cell).values() if isinstance(each, list)] for cell in self.cells())
        return sum(math.prod(map(len, each)) for each in lists) * (folds or self.repeats)

    def trial(self, cell: Sequence[str], tuned: Mapping[str, Any], repeat: int = 0, fold: int | None = None) -> Trial:
        """Make the trial of a cell with these tuned values, of the `repeat`-th repetition, or of one fold."""
        repeated = {key: values[repeat] for key, values in self.repeat.items()}
        tables, derived = self._tables(cell, tuned, repeated, fold)
        repeated = {key: value for key, value in repeated.items() if takes(tables, key) is not False}
        lists = self._lists(cell)
        varied = {**tuned, **(repeated if fold is None else {})}
        pieces = [axis.piece(case) for axis, case in zip(self.axes, cell, strict=True)]
        pieces += [f"{self.shortened[key]}={_text(value, lists.get(key, []))}" for key, value in varied.items()]
        name = folder_name(pieces if fold is None else [*pieces, f"fold={fold}"])
        spec = check_spec(tables, source=f"{self.source} ({name})", folder=self.folder)
        return Trial(name, tuple(cell), dict(tuned), repeated, fold, spec, derived)

    def _lists(self, cell: Sequence[str]) -> dict[str, Values]:
        """Return the lists of values that trials of a cell differ by."""
        common = self.tuning.keys if self.tuning is not None else {}
        return {**common, **self._own_lists(cell), **self.repeat}

    def _own_lists(self, cell: Sequence[str]) -> dict[str, Values]:
        """Return what a cell's cases tune by themselves; a list of the scale holds whatever they say."""
        changes = self._changes(cell)
        return {key: each for change in changes for key, each in change.tune.items() if key not in self.scale_tunes}

    def _changes(self, cell: Sequence[str]) -> list[Change]:
        changes = [axis.cases[case] for axis, case in zip(self.axes, cell, strict=True)]
        return changes + [condition.change for condition in self.conditions if condition.holds(cell)]

    def _tables(
        self, cell: Sequence[str], tuned: Mapping[str, Any], repeated: Mapping[str, Any], fold: int | None
    ) -> tuple[Table, dict[str, float]]:
        """Return the tables of a trial's spec, and what was derived for them."""
        tables = self.plain(cell, tuned, repeated, fold)
        derived = {}
        for key, formula in self.derive.items():
            if key not in self.scale and key not in self.sets and takes(tables, key) is not False:
                derived[key] = formula.value(tables)
                assign(tables, {key: derived[key]}, formula.where)
        tables.pop(VALUES, None)
        return tables, derived

    def plain(
        self,
        cell: Sequence[str],
        tuned: Mapping[str, Any] = MappingProxyType({}),
        repeated: Mapping[str, Any] = MappingProxyType({}),
        fold: int | None = None,
    ) -> Table:
        """Return the tables of a trial before anything is derived."""
        tables = copy.deepcopy(self.base)
        for axis, case in zip(self.axes, cell, strict=True):
            assign(tables, axis.cases[case].keys, f"{axis.where} {visible(case, 40)}:")
        for condition in self.conditions:
            if condition.holds(cell):
                assign(tables, condition.change.keys, f"{self.source}: [[when]]")
        assign(tables, tuned, f"{self.source}: [tune]")
        for keys in (repeated, self.scale, self.sets):
            assign(tables, {key: value for key, value in keys.items() if takes(tables, key) is not False}, self.source)
        if fold is not None and self.tuning is not None:
            assign(tables, {"run.folds": self.tuning.folds, "run.fold": fold}, f"{self.source}: [tune] folds")
        _prune(tables, self.base)
        return tables


def _prune(tables: Table, base: Mapping[str, Any]) -> None:
    """Leave out what the file gives for all cases, where the function of this one does not take it."""
    for table, content in base.items():
        inner = tables.get(table)
        if isinstance(content, dict) and isinstance(inner, dict):
            for key in [key for key, value in content.items() if key in inner and inner[key] == value]:
                if takes(tables, f"{table}.{key}") is False:
                    del inner[key]


def _text(value: object, values: Values) -> str:
    """Write a value as part of a folder's name, so that it differs from the others in its list, or range."""
    alone = isinstance(values, list) and sum(label(each) == label(value) for each in values) == 1
    return label(value, exact=not alone)
