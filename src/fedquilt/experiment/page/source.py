"""Finds and reads what a report is asked to show: runs, folders of runs, experiments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.base.errors import RunError
from fedquilt.experiment.contents import (
    ASIDE,
    CHECKPOINTS,
    CLIENT_ACCURACIES,
    ENVIRONMENT,
    ERROR,
    EXPERIMENT,
    METRICS,
    POPULATION,
    SPEC,
    Contents,
)
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.results.figures import FigureData, figures_of
from fedquilt.experiment.results.outcome import Outcome, outcome_of
from fedquilt.experiment.summary import summarise

READ = (SPEC, METRICS, CLIENT_ACCURACIES, POPULATION, ENVIRONMENT, ERROR, CHECKPOINTS)
"""Files whose change makes it necessary to read a run again."""

DEEP = 3
"""How many folders below the one that is named runs are looked for."""


@dataclass(frozen=True)
class ReadRun:
    """A run that was read: what its folder holds, and what that says; or why it could not be read."""

    path: Path
    found: Contents | None = None
    about: dict[str, Any] | None = None
    problem: str | None = None


class Reader:
    """Reads runs, and those that have changed again."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._runs: dict[Path, tuple[object, ReadRun]] = {}
        self._outcomes: dict[Path, tuple[object, Outcome]] = {}
        self._figures: dict[Path, tuple[object, tuple[FigureData, ...]]] = {}

    def run(self, path: Path) -> ReadRun:
        """Read a run folder; what is wrong with one that cannot be read is in its `problem`."""
        folder = RunFolder(path)
        key = _key(folder)
        if path not in self._runs or self._runs[path][0] != key:
            self._runs[path] = key, _read(folder)
        return self._runs[path][1]

    def outcome(self, trial: Trial, folder: Path) -> Outcome:
        """Read what became of a trial of an experiment."""
        run = RunFolder(folder / trial.name)
        key = _key(run)
        if run.path not in self._outcomes or self._outcomes[run.path][0] != key:
            self._outcomes[run.path] = key, outcome_of(trial, folder)
        return self._outcomes[run.path][1]

    def figures(self, experiment: Experiment, folder: Path, outcomes: Sequence[Outcome]) -> tuple[FigureData, ...]:
        """Compute the figures of trained models that an experiment asks for, when a run has ended since the last time."""
        key = tuple((outcome.trial.name, outcome.state, len(outcome.history)) for outcome in outcomes if outcome.ended)
        if folder not in self._figures or self._figures[folder][0] != key:
            self._figures[folder] = key, tuple(figures_of(experiment, folder))
        return self._figures[folder][1]


def _key(folder: RunFolder) -> tuple[object, ...]:
    """Return what changes when there is something new to read of a run."""
    return (folder.running(), *(_stamp(folder.path / name) for name in READ))


def _read(folder: RunFolder) -> ReadRun:
    try:
        found = folder.read()
    except RunError as error:
        return ReadRun(folder.path, problem=str(error))
    return ReadRun(folder.path, found, summarise(folder, found))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def run_folders(path: Path, deep: int = DEEP) -> Iterator[Path]:
    """Iterate over the run folders below a folder, in the order of their names; what is hidden or set aside is not."""
    for inner in sorted(path.iterdir()):
        if inner.name.startswith(".") or inner.name == ASIDE or not inner.is_dir():
            continue
        if is_run(inner):
            yield inner
        elif deep > 1:
            yield from run_folders(inner, deep - 1)


def stamps(paths: Sequence[Path]) -> tuple[object, ...]:
    """Return what changes whenever there is something new to read below some folders; nothing is opened."""
    found: list[object] = []
    for path in paths:
        inner = [path] if is_run(path) else list(run_folders(path)) if path.is_dir() else []
        found += [(path, _stamp(path / EXPERIMENT)), *((each, _key(RunFolder(each))) for each in inner)]
    return tuple(found)


def is_run(path: Path) -> bool:
    """Say whether a folder is a run folder."""
    return (path / SPEC).is_file()


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Return short names for folders: as much of the end of their paths as tells them apart.

    >>> labels_of([Path("a/x"), Path("b/y")]), labels_of([Path("a/x"), Path("b/x")])
    (['x', 'y'], ['a/x', 'b/x'])
    """
    longest = max((len(path.parts) for path in paths), default=0)
    for count in range(1, longest + 1):
        labels = [str(Path(*path.parts[-count:])) for path in paths]
        if len(set(labels)) == len(paths) and all(label != "." for label in labels):
            return labels
    return [str(path) for path in paths]
