"""Lists the trials of an experiment, each with a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence

from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import visible
from fedquilt.experiment.design.blueprint import Blueprint
from fedquilt.experiment.design.trial import Trial


def wanted_cells(blueprint: Blueprint, only: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the cells that have one of the cases named on each axis that any is named of; all, if none is named."""
    by_axes: dict[frozenset[int], set[tuple[int, str]]] = {}
    for name in only:
        found = _wanted(blueprint, name)
        by_axes.setdefault(frozenset(axis for axis, _ in found), set()).update(found)
    return tuple(
        cell
        for cell in blueprint.cells()
        if all(any(cell[axis] == case for axis, case in cases) for cases in by_axes.values())
    )


def list_trials(blueprint: Blueprint, cells: Sequence[tuple[str, ...]]) -> tuple[Trial, ...]:
    """Make the trials of these cells; of cross-validation, those of its folds."""
    folds = blueprint.tuning.folds if blueprint.tuning is not None else None
    trials: list[Trial] = []
    for cell in cells:
        for tuned in blueprint.combinations(cell):
            if folds is None:
                trials += [blueprint.trial(cell, tuned, repeat) for repeat in range(blueprint.repeats)]
            else:
                trials += [blueprint.trial(cell, tuned, fold=fold) for fold in range(folds)]
    _require_own_folders(trials, blueprint.source)
    return tuple(trials)


def _wanted(blueprint: Blueprint, name: str) -> list[tuple[int, str]]:
    """Find a case that is named alone, or with its axis, as in `batch=10`."""
    found = [
        (number, case)
        for number, axis in enumerate(blueprint.axes)
        for case in axis.cases
        if name in (case, f"{axis.name}={case}")
    ]
    if not found:
        known = [case for axis in blueprint.axes for case in axis.cases]
        raise SpecError(f"--only {visible(name, 80)}: there is no such case; {nearest(name, known)}")
    return found


def _require_own_folders(trials: Sequence[Trial], source: str) -> None:
    """Refuse two trials with one folder; file systems may not tell capital letters apart."""
    seen: dict[str, str] = {}
    for trial in trials:
        other = seen.setdefault(trial.name.casefold(), trial.name)
        if other is not trial.name:
            raise SpecError(
                f"{source}: two trials would have one folder, {visible(other, 80)} and {visible(trial.name, 80)}; "
                "give their cases names that differ by more than capital letters"
            )
