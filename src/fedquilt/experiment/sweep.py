"""Runs a spec over a grid of values and compares rounds to a target with published ones.

    [sweep]
    "method.lr" = [0.05, 0.1, 0.2]

    [published]
    target = 0.97
    "Table 1" = 87

Every point of the grid has its own run folder; finished points are not run again, and interrupted ones are continued. A
point is identified by its settings and by those of the engine that decide the bits: a folder of other ones is refused.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.analysis.curves import History
from fedquilt.base.errors import RunError, SpecError
from fedquilt.base.text import short
from fedquilt.experiment.build import build
from fedquilt.experiment.execute import Watcher
from fedquilt.experiment.fingerprint import differences
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.run import read_spec, resume, run
from fedquilt.experiment.spec import Spec, check_spec, load_spec, names_first, put
from fedquilt.experiment.storage import storing
from fedquilt.experiment.summary import as_json, quiet_summary, summarise
from fedquilt.experiment.toml import Table
from fedquilt.round.session import Settling, settled

Announce = Callable[[str, int, int], Watcher | None]
"""(name of the point, its number, how many there are) -> who is told how its training goes."""


MOST_POINTS = 10_000
LONGEST_NAME = 200
"""Bytes of a folder's name; file systems take 255."""


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
    spec: str | Path | Spec,
    sets: Iterable[str] = (),
    out: str | Path | None = None,
    announce: Announce | None = None,
    unsets: Iterable[str] = (),
) -> Sweep:
    """Run every point of a spec's `[sweep]` that is not finished, and write `results.json` beside the runs.

    `sets` and `unsets` change the spec as for `run`. A point that names another function than the spec is without the
    keys that only the spec's takes.

    >>> import tempfile
    >>> from fedquilt.experiment.template import TEMPLATE
    >>> grid = TEMPLATE + '[sweep]\\n"method.lr" = [0.01, 0.1]\\n'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rates.toml"
    ...     _ = path.write_text(grid)
    ...     done = sweep(path, ["run.rounds=1", "engine.name=inline"], out=f"{folder}/rates")
    >>> [point.name for point in done.points], done.results.name
    (['lr=0.01', 'lr=0.1'], 'results.json')
    """
    checked = spec if isinstance(spec, Spec) else load_spec(spec, sets, unsets)
    folder = Path(out) if out is not None else Path("runs") / Path(checked.source).stem
    grid = list(_grid(checked))
    target = _target(checked)
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
        _point(folder / name, name, values, target) for (name, _), values in zip(grid, _values(checked), strict=True)
    ]
    published = {key: value for key, value in checked.free.get("published", {}).items() if key != "target"}
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


def _target(spec: Spec) -> float | None:
    target = spec.free.get("published", {}).get("target")
    if target is None or (isinstance(target, int | float) and 0 < target <= 1):
        return target
    raise SpecError(
        f"{spec.source}: [published] target: must be an accuracy above 0 and at most 1, got {short(target)}"
    )


def _values(spec: Spec) -> Iterator[dict[str, Any]]:
    axes: Table = spec.free.get("sweep", {})
    if not axes:
        raise SpecError(f'{spec.source}: [sweep]: the table is missing; write for example: "method.lr" = [0.05, 0.1]')
    for key, values in axes.items():
        if isinstance(values, dict):
            inner = next(iter(values), "key")
            raise SpecError(f'{spec.source}: [sweep] {key}.{inner}: write the key in quotes, "{key}.{inner}"')
        if "." not in key:
            raise SpecError(f'{spec.source}: [sweep] {key}: write the table too, in quotes, such as "method.{key}"')
        if not isinstance(values, list) or not values:
            raise SpecError(f'{spec.source}: [sweep] "{key}": must be a list of values, got {short(values)}')
    points = math.prod(len(values) for values in axes.values())
    if points > MOST_POINTS:
        raise SpecError(f"{spec.source}: [sweep]: has {points:,} points; at most {MOST_POINTS:,} are allowed")
    for chosen in itertools.product(*axes.values()):
        yield dict(zip(axes, chosen, strict=True))


def _name(values: dict[str, Any]) -> str:
    """Name the folder of a point for its values; what no folder can be called, or lies elsewhere, by a digest."""
    name = ",".join(f"{key.partition('.')[2]}={value}" for key, value in values.items())
    if name.isprintable() and len(name.encode()) <= LONGEST_NAME and ".." not in Path(name).parts:
        return name
    plain = re.sub(r"[^A-Za-z0-9=.,_+-]", "_", name)
    return f"{plain[:100]}-{hashlib.sha256(name.encode(errors='backslashreplace')).hexdigest()[:16]}"


def _grid(spec: Spec) -> Iterator[tuple[str, Spec]]:
    for values in _values(spec):
        tables = copy.deepcopy(spec.resolved())
        for name in ("sweep", "published"):
            tables.pop(name, None)
        for key, value in names_first(values.items()):
            put(tables, key, value)
        yield _name(values), check_spec(tables, source=spec.source, folder=spec.folder)


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
