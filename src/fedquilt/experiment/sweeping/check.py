"""What a sweep would do: how many trials and rounds, how long they would take here, and how much memory.

Time and memory are measured: a short trial is run of every cell, as many at once as the sweep would run, each until its
rounds have taken a few seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from fedquilt.base import memory
from fedquilt.base.errors import FedquiltError
from fedquilt.experiment.build import method_of
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.results.race import races_in
from fedquilt.experiment.sweeping.board import TrialProgress
from fedquilt.experiment.sweeping.conduct import conduct
from fedquilt.experiment.sweeping.display import SweepWatcher
from fedquilt.experiment.sweeping.executors import ENDED, Advanced
from fedquilt.experiment.sweeping.jobs import Jobs, jobs_for
from fedquilt.experiment.sweeping.standing import standing
from fedquilt.experiment.sweeping.sweep import sweep_folder

SECONDS = 3.0
"""How long the rounds of a short trial take, together; its first round is run in any case."""

MOST_CELLS = 8
"""Cells of which a short trial is run: of more, these are spread over all."""


@dataclass(frozen=True)
class Estimate:
    """What a sweep would do.

    - `trials`, `rounds`: to run, of `listed` trials in all; those that are finished or `given_up` in `folder` are not run
      again.
    - `jobs`: how many at once, and with how many workers each.
    - `seconds`, `memory`: of all trials, and of one at most; None where no short trial was run, or all failed.
    - `short`: the short trials, and how they ended.
    - `refused`: the names of trials whose method cannot be made, by the reason.
    """

    experiment: Experiment
    folder: Path
    listed: int
    trials: int
    given_up: int
    rounds: int
    jobs: Jobs
    seconds: float | None
    memory: int | None
    free: int
    short: tuple[TrialProgress, ...]
    refused: dict[str, list[str]]


def check(
    experiment: Experiment,
    out: str | Path | None = None,
    jobs: int | None = None,
    watcher: SweepWatcher | None = None,
    measure: bool = True,
) -> Estimate:
    """Say what `sweep` would do; without `measure`, without short trials, and so without time and memory.

    >>> import fedquilt
    >>> tables = {
    ...     "run": {"rounds": 20},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "iid", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg"},
    ...     "grid": {"method.lr": [0.1, 0.5]},
    ... }
    >>> found = check(fedquilt.experiment(tables), measure=False)
    >>> found.trials, found.rounds, found.seconds
    (2, 40, None)
    """
    folder = Path(out) if out is not None else sweep_folder(experiment)
    trials = _trials(experiment)
    kept = [trial for trial in trials if standing(folder / trial.name, trial.spec, thorough=False).kind in ENDED]
    races = races_in(experiment, folder)
    lost = [
        trial for trial in trials if trial.cell in races and races[trial.cell].overtaken(trial) and trial not in kept
    ]
    todo = [trial for trial in trials if trial not in kept and trial not in lost]
    found = Estimate(
        experiment=experiment,
        folder=folder,
        listed=len(trials),
        trials=len(todo),
        given_up=len(lost),
        rounds=sum(trial.spec.options.rounds for trial in todo),
        jobs=jobs_for([trial.spec for trial in todo], jobs),
        seconds=None,
        memory=None,
        free=memory.free(),
        short=(),
        refused=refused(todo),
    )
    return _measured(found, todo, jobs, watcher) if measure and todo else found


def _trials(experiment: Experiment) -> list[Trial]:
    """Return all trials; of a search, and after cross-validation, as many as there will be, whatever their values."""
    blueprint = experiment.blueprint
    repeats, tuning = range(blueprint.repeats), experiment.tuning
    if blueprint.search is not None:
        each = [experiment.trial(cell, {}, repeat) for cell in experiment.cells for repeat in repeats]
        return [replace(trial, name=f"{trial.name} {n}") for trial in each for n in range(blueprint.search.trials)]
    finals = experiment.cells if tuning is not None and tuning.folds is not None else ()
    chosen = [next(trial.tuned for trial in experiment.trials if trial.cell == cell) for cell in finals]
    more = [experiment.trial(cell, tuned, n) for cell, tuned in zip(finals, chosen, strict=True) for n in repeats]
    return [*experiment.trials, *more]


def refused(trials: Sequence[Trial]) -> dict[str, list[str]]:
    """Return the names of trials whose method cannot be made, by the reason; no data are read for it."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        try:
            method_of(trial.spec)
        except FedquiltError as error:
            found.setdefault(str(error).replace(f" ({trial.name}):", ":"), []).append(trial.name)
    return found


class _Short:
    """A `Source` of short trials: the first of every cell, or of some of them."""

    why_given_up = ""

    def __init__(self, trials: Sequence[Trial]) -> None:
        first = list({trial.cell: trial for trial in reversed(trials)}.values())[::-1]
        every = -(-len(first) // MOST_CELLS)
        self._trials = [_shortened(trial) for trial in first[::every]]

    def more(self) -> Sequence[Trial]:
        trials, self._trials = self._trials, []
        return trials

    def advanced(self, row: TrialProgress, event: Advanced) -> bool:
        return False

    def needed(self, trial: Trial) -> bool:
        return True

    def ended(self, row: TrialProgress) -> None:
        pass


def _shortened(trial: Trial) -> Trial:
    """Return a trial that ends after a few seconds; all else stays, also what it decides by the number of its rounds."""
    options = replace(trial.spec.options, stop_after_seconds=SECONDS, checkpoint_seconds=3600.0)
    return replace(trial, spec=replace(trial.spec, options=options))


def _measured(found: Estimate, todo: Sequence[Trial], jobs: int | None, watcher: SweepWatcher | None) -> Estimate:
    with tempfile.TemporaryDirectory(prefix="fedquilt-check-") as name:
        folder = Path(name)
        done = conduct(_Short(todo), folder, jobs or found.jobs.number, watcher)
        if done.interrupted:
            raise KeyboardInterrupt
        took = [(row, seconds) for row in done.rows if (seconds := _seconds(folder / row.name))]
    if not took:
        return replace(found, short=done.rows)
    # The first round warms up; what a trial takes besides its rounds is seen best in one that is not the first.
    paces = {row.trial.cell: fmean(seconds[1:] or seconds) for row, seconds in took}
    around = min(max(row.seconds - sum(seconds), 0.0) for row, seconds in took)
    overall = fmean(paces.values())
    each = [around + paces.get(trial.cell, overall) * trial.spec.options.rounds for trial in todo]
    total = max(sum(each) / found.jobs.number, *each)
    return replace(found, seconds=total, memory=max(done.memory.values(), default=None), short=done.rows)


def _seconds(folder: Path) -> list[float]:
    """Return the seconds of a short trial's rounds."""
    if not RunFolder(folder).spec.exists():
        return []
    return [record["seconds"] for record in RunFolder(folder).history()]
