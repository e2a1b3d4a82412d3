"""Runs a spec over a grid of values and compares rounds to a target with published ones.

    [sweep]
    "method.lr" = [0.05, 0.1, 0.2]

    [published]
    target = 0.97
    "Table 1" = 87

Every point of the grid has a run folder of its own; points that are finished are not run again, and interrupted ones go on.
A point is what its settings say, and what of the engine decides the bits: another one is refused.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.engine import Settling, settled
from fedquilt.errors import RunError, SpecError
from fedquilt.experiment.build import build
from fedquilt.experiment.execute import Watcher
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.run import read_spec, resume, run
from fedquilt.experiment.spec import WRAP, Spec, Table, check_spec, load_spec, put
from fedquilt.experiment.summary import as_json, quiet_summary

Announce = Callable[[str, int, int], Watcher | None]
"""(name of the point, its number, how many there are) -> who is told how its training goes."""


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    name: str
    values: dict[str, Any]
    best: float | None
    rounds_to_target: float | None
    loss: float | None = None


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, beside what was published."""

    points: list[Point]
    target: float | None
    published: dict[str, Any]
    results: Path
    interrupted: bool

    @property
    def winner(self) -> Point | None:
        """The point that reached the target first; without a target, the best: of accuracy or, without it, of loss."""
        if self.target is None:
            scored = [point for point in self.points if point.best is not None]
            known = [point for point in self.points if point.loss is not None]
            if not scored:
                return min(known, key=lambda point: point.loss or 0.0, default=None)
            return max(scored, key=lambda point: point.best or 0.0)
        crossed = [point for point in self.points if point.rounds_to_target is not None]
        return min(crossed, key=lambda point: point.rounds_to_target or math.inf, default=None)


def sweep(
    spec: str | Path, sets: Iterable[str] = (), out: str | Path | None = None, announce: Announce | None = None
) -> Sweep:
    """Run every point of a spec's `[sweep]` that is not finished, and write `results.json` beside the runs.

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
    checked = load_spec(spec, sets)
    folder = Path(out) if out is not None else Path("runs") / Path(spec).stem
    grid = list(_grid(checked))
    target = _target(checked)
    interrupted = False
    for number, (name, point) in enumerate(grid, start=1):
        if interrupted:
            break
        interrupted = _run_point(folder / name, point, announce, name, number, len(grid))
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
    if exists and quiet_summary(folder)["state"] == "finished":
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
    for name in ("run", *sorted((before | now).keys() - {"run"})):
        old, new = before.get(name, {}), now.get(name, {})
        for key in sorted((old | new).keys() - {"checkpoint_seconds", "import_from"}):
            if old.get(key) != new.get(key):
                raise RunError(
                    f"{folder}: holds a run with other settings ([{name}] {key} is {old.get(key)!r} there, "
                    f"{new.get(key)!r} in the spec); delete it, or choose another folder with --out"
                )


def _settings(spec: Spec) -> dict[str, Table]:
    """Return what decides a run's result, by table."""
    tables = spec.resolved()
    wraps = {f"{WRAP} {number}": table for number, table in enumerate(tables.pop(WRAP, []), start=1)}
    return tables | wraps | {"engine": _deciding(spec)}


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
    raise SpecError(f"{spec.source}: [published] target: must be an accuracy above 0, at most 1, got {target!r}")


def _values(spec: Spec) -> Iterator[dict[str, Any]]:
    axes: Table = spec.free.get("sweep", {})
    if not axes:
        raise SpecError(f'{spec.source}: [sweep]: the table is missing; write for example: "method.lr" = [0.05, 0.1]')
    for key, values in axes.items():
        if isinstance(values, dict):
            inner = next(iter(values), "key")
            raise SpecError(f'{spec.source}: [sweep] {key}.{inner}: write the key in quotes, "{key}.{inner}"')
        if "." not in key:
            raise SpecError(f'{spec.source}: [sweep] {key}: write the table too, in quotes, as in "method.{key}"')
        if not isinstance(values, list) or not values:
            raise SpecError(f'{spec.source}: [sweep] "{key}": must be a list of values, got {values!r}')
    for chosen in itertools.product(*axes.values()):
        yield dict(zip(axes, chosen, strict=True))


def _grid(spec: Spec) -> Iterator[tuple[str, Spec]]:
    for values in _values(spec):
        tables = copy.deepcopy(spec.resolved())
        for name in ("sweep", "published"):
            tables.pop(name, None)
        for key, value in values.items():
            put(tables, key, value)
        name = ",".join(f"{key.partition('.')[2]}={value}" for key, value in values.items())
        yield name, check_spec(tables, source=spec.source, folder=spec.folder)


def _point(folder: Path, name: str, values: dict[str, Any], target: float | None) -> Point:
    history = RunFolder(folder).history()
    crossed = None if target is None else history.rounds_to(target)
    lowest = history.lowest
    return Point(name, values, history.best[1] if history.best else None, crossed, lowest[1] if lowest else None)


def _write(done: Sweep) -> None:
    winner = done.winner
    content = {
        "target": done.target,
        "published": done.published,
        "best": None if winner is None else vars(winner),
        "points": [vars(point) for point in done.points],
    }
    done.results.parent.mkdir(parents=True, exist_ok=True)
    done.results.write_text(as_json(content) + "\n", encoding="utf-8")
