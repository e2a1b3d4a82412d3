"""Runs an experiment: all its trials that are not finished, several at once, into folders of their own below one."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedquilt.base.errors import RunError
from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.contents import EXPERIMENT, SPEC
from fedquilt.experiment.design import experiment as design
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.results.cells import Cell, cells_of
from fedquilt.experiment.results.figures import figures_of
from fedquilt.experiment.results.table import ResultTable, table_of
from fedquilt.experiment.storage import storing
from fedquilt.experiment.sweeping.board import TrialProgress
from fedquilt.experiment.sweeping.conduct import conduct
from fedquilt.experiment.sweeping.display import SweepWatcher
from fedquilt.experiment.sweeping.executors import Executor
from fedquilt.experiment.sweeping.sources import source_of


@dataclass(frozen=True)
class SweepResult:
    """An experiment whose trials were run, or as many of them as time was for.

    `trials` says how each ended; `interrupted` and `out_of_time` why some did not. The same sweep again continues them.
    """

    experiment: Experiment
    folder: Path
    trials: tuple[TrialProgress, ...]
    interrupted: bool
    out_of_time: bool

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells of the experiment's table, as its run folders have them when this is first asked for."""
        return cells_of(self.experiment, self.folder)

    @property
    def table(self) -> ResultTable:
        """The experiment's table, in rows and columns."""
        return table_of(self.experiment, self.cells)

    def _repr_html_(self) -> str:
        """Show its table in a notebook, and where its runs are."""
        return f"{self.table._repr_html_()}<br><small>{html.escape(repr(self))}</small>"

    def __repr__(self) -> str:
        """Say how it went, not all that is in it."""
        states = [row.state for row in self.trials]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"SweepResult({str(self.folder)!r}, {counts})"


def sweep(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    sets: Iterable[str] = (),
    out: str | Path | None = None,
    jobs: int | None = None,
    only: Iterable[str] = (),
    scale: str | None = None,
    watcher: SweepWatcher | None = None,
    unsets: Iterable[str] = (),
    budget_seconds: float | None = None,
    executor: Executor | None = None,
) -> SweepResult:
    """Run every trial of an experiment (a file, or its tables) that is not finished.

    Trials run several at once, each in a process of its own: `jobs` of them, or one per core. What a trial says is in
    `log.txt` of its folder. A trial that fails or diverges is marked, and the others continue; a finished one is not run
    again unless what decides its result has changed. After an interruption, of whatever kind, or once `budget_seconds`
    have passed, the same call continues. `sets` and `unsets` change the experiment as for `run`, `scale` is one of its
    scales, and `only` leaves the trials of these cases. `executor` runs them elsewhere than on this machine.

    >>> import tempfile
    >>> tables = {
    ...     "run": {"rounds": 2},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "iid", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg"},
    ...     "grid": {"method.lr": [0.1, 0.5]},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = sweep(tables, out=f"{folder}/rates")
    >>> [(row.name, row.state) for row in done.trials]
    [('lr=0.1', 'finished'), ('lr=0.5', 'finished')]
    """
    if not isinstance(experiment, Experiment):
        experiment = design.experiment(experiment, sets, unsets, scale, only)
    folder = Path(out) if out is not None else sweep_folder(experiment)
    if (folder / SPEC).exists():
        raise RunError(f"{folder}: holds a single run; choose another folder for the trials with --out")
    with RunFolder(folder).locked():
        with storing(folder):
            write_whole(folder / EXPERIMENT, experiment.to_toml().encode())
        done = conduct(source_of(experiment, folder), folder, jobs, watcher, budget_seconds, executor)
        if not (done.interrupted or done.out_of_time):
            figures_of(experiment, folder)  # while the code that they need is imported: a report imports none
    return SweepResult(experiment, folder, done.rows, done.interrupted, done.out_of_time)


def sweep_folder(experiment: Experiment) -> Path:
    """Return the folder that an experiment is run into unless another is given: each scale has its own."""
    name = experiment.title if experiment.file is None else experiment.file.stem
    plain = re.sub(r"[^\w.+=,-]+", "-", name).strip("-.") or "experiment"
    return Path("runs") / (plain if experiment.scale is None else f"{plain}-{experiment.scale}")
