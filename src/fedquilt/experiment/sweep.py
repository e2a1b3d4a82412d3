"""Runs the trials of an experiment and compares rounds to a target with published ones.

Every trial has a run folder of its own; points that are finished are not run again, and interrupted ones go on.
A point is what its settings say, and what of the engine decides the bits: another one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.analysis.curves import History
from fedquilt.base.errors import RunError
from fedquilt.base.text import short
from fedquilt.experiment.build import build
from fedquilt.experiment.design.experiment import Experiment, load_experiment
from fedquilt.experiment.fingerprint import differences
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.run import read_spec, resume, run
from fedquilt.experiment.spec import Spec
from fedquilt.experiment.storage import storing
from fedquilt.experiment.summary import as_json, quiet_summary, summarise
from fedquilt.experiment.toml import Table
from fedquilt.experiment.watching import Watcher
from fedquilt.round.session import Settling, settled

Announce = Callable[[str, int, int], Watcher | None]
"""(name of the point, its number, how many there are) -> who is told how its training goes."""


@dataclass(frozen=True)
class Point:
    """One run of a sweep; `state` is as `fedquilt show` has it, or "not run"."""

    name: str
    values: dict[str, Any]
    best: float | None
    rounds_to_target: float | None
    loss: float | None = None
    diverged: bool = False
    state: str = "finished"


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, beside what was published."""

    points: list[Point]
    target: float | None
    published: dict[str, Any]
    results: Path
    interrupted: bool

    @property
    def reached(self) -> bool | None:
        """Whether a point reached the target; None without one."""
        return None if self.target is None else any(point.rounds_to_target is not None for point in self._sound())

    @property
    def winner(self) -> Point | None:
        """The point that reached the target first; without a target, or if none did, the best.

        That is the one of the highest accuracy or, where that is not measured, of the lowest loss. A point that diverged,
        or that is not finished, is never it.
        """
        crossed = [point for point in self._sound() if point.rounds_to_target is not None]
        if crossed:
            return min(crossed, key=lambda point: point.rounds_to_target or math.inf)
        scored = [point for point in self._sound() if point.best is not None]
        if scored:
            return max(scored, key=lambda point: point.best or 0.0)
        known = [point for point in self._sound() if point.loss is not None]
        return min(known, key=lambda point: point.loss or 0.0, default=None)

    def _sound(self) -> list[Point]:
        return [point for point in self.points if point.state == "finished" and not point.diverged]


def sweep(
    spec: str | Path | Experiment,
    sets: Iterable[str] = (),
    out: str | Path | None = None,
    announce: Announce | None = None,
    unsets: Iterable[str] = (),
) -> Sweep:
    """Run every trial of an experiment that is not finished, and write `results.json` beside the runs.

    `sets` and `unsets` change it as for `run`.

    >>> import tempfile
    >>> from fedquilt.experiment.template import TEMPLATE
    >>> grid = TEMPLATE + '[grid]\\n"method.lr" = [0.01, 0.1]\\n'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rates.toml"
    ...     _ = path.write_text(grid)
    ...     done = sweep(path, ["run.rounds=1", "engine.name=inline"], out=f"{folder}/rates")
    >>> [point.name for point in done.points], done.results.name
    (['lr=0.01', 'lr=0.1'], 'results.json')
    """
    experiment = spec if isinstance(spec, Experiment) else load_experiment(spec, sets, unsets)
    folder = Path(out) if out is not None else Path("runs") / experiment.title
    grid = [(trial.name, trial.spec) for trial in experiment.trials]
    target = experiment.metric.target
    interrupted = False
    for number, (name, point) in enumerate(grid, start=1):
        if interrupted:
            break
        try:
            interrupted = _run_point(folder / name, point, announce, name, number, len(grid))
        except KeyboardInterrupt:  # while a point's data were read: the points before it are there
            if not any(RunFolder(folder / name).spec.exists() for name, _ in grid):
                raise
            interrupted = True
    points = [
        _point(folder / trial.name, trial.name, trial.tuned | trial.repeated, target) for trial in experiment.trials
    ]
    published = {each.source: each.value for each in experiment.published}
    done = Sweep(points, target, published, folder / "results.json", interrupted)
    _write(done)
    return done


def _run_point(folder: Path, spec: Spec, announce: Announce | None, name: str, number: int, total: int) -> bool:
    exists = RunFolder(folder).spec.exists()
    if exists:
        _require_same(folder, spec)
    if exists and quiet_summary(folder)["state"] in ("finished", "diverged"):
        return False
    watcher = announce(name, number, total) if announce is not None else None
    ended = resume(folder, watcher=watcher) if exists else run(spec, out=folder, watcher=watcher)
    return ended.result.interrupted


def _require_same(folder: Path, spec: Spec) -> None:
    """Refuse to take a run made with other settings for a point of this sweep."""
    before, now = _settings(read_spec(RunFolder(folder))), _settings(spec)
    if now["engine"].get("compute") == "auto" != before["engine"].get("compute"):
        federation, engine = build(spec)
        now["engine"] = _deciding_of(settled(engine, federation, spec.options.rounds))
    for where, old, new in differences(before, now, {"run.checkpoint_seconds", "run.import_from"}):
        raise RunError(
            f"{folder}: holds a run with other settings ({where} is {short(old)} there, {short(new)} in the spec); "
            "delete it, or choose another folder with --out"
        )


def _settings(spec: Spec) -> dict[str, Table]:
    """Return what decides a run's result, by table."""
    return spec.resolved() | {"engine": _deciding(spec)}


def _deciding(spec: Spec) -> Table:
    """Return what of a spec's engine decides the bits of a result: not the number of workers, for example."""
    part = spec.parts["engine"]
    return _deciding_of(part.function(**part.arguments)) or {"name": part.name, **part.arguments}


def _deciding_of(engine: object) -> Table:
    return {"compute": engine.compute, "where": engine.where} if isinstance(engine, Settling) else {}


def _point(folder: Path, name: str, values: dict[str, Any], target: float | None) -> Point:
    run = RunFolder(folder)
    found = run.read_aloud() if run.spec.exists() else None
    history = History([]) if found is None or found.lost else found.history
    state = "not run" if found is None else summarise(run, found)["state"]
    crossed = None if target is None else history.rounds_to(target)
    lowest = history.lowest
    best = history.best[1] if history.best else None
    return Point(name, values, best, crossed, lowest[1] if lowest else None, state == "diverged", state)


def _write(done: Sweep) -> None:
    winner = done.winner
    content = {
        "target": done.target,
        "published": done.published,
        "reached": done.reached,
        "best": None if winner is None else vars(winner),
        "points": [vars(point) for point in done.points],
    }
    with storing(done.results.parent):
        done.results.parent.mkdir(parents=True, exist_ok=True)
        done.results.write_text(as_json(content) + "\n", encoding="utf-8")
