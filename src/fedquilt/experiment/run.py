"""Runs a spec into a run folder, and goes on with a run that was interrupted."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.engine import Engine
from fedquilt.core.federation import Federation
from fedquilt.errors import RunError, SpecError
from fedquilt.experiment.build import build
from fedquilt.experiment.environment import environment
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.plots import draw_run
from fedquilt.experiment.spec import Spec, assign, check_spec, load_spec
from fedquilt.experiment.training import Result, Watcher, execute


@dataclass(frozen=True)
class Run:
    """A run and its folder."""

    folder: Path
    result: Result


def run(
    spec: str | Path | Mapping[str, Any],
    sets: Iterable[str] = (),
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Run a spec (a file, or its tables) and return the result; `sets` are changes such as "method.lr=0.05".

    Without `out`, the folder is `runs/<name of the spec>`, with a number behind it if that is taken.
    """
    checked = _from_tables(spec, sets) if isinstance(spec, Mapping) else load_spec(spec, sets)
    if "sweep" in checked.free:
        raise SpecError(f"{checked.source}: [sweep]: this spec describes many runs; use `fedquilt sweep`")
    folder = RunFolder(Path(out) if out is not None else _free_folder(checked))
    if folder.spec.exists():
        raise RunError(
            f"{folder.path}: already holds a run; go on with it by `fedquilt resume {folder.path}`, "
            "or choose another folder"
        )
    with folder.locked():
        federation, engine = build(checked)
        folder.begin(checked.to_toml(), environment())
        return _finished(folder, federation, engine, checked, watcher)


def resume(path: str | Path, rounds: int | None = None, watcher: Watcher | None = None) -> Run:
    """Go on with a run from its newest good checkpoint; `rounds` makes it longer (or shorter)."""
    folder = RunFolder(Path(path))
    spec = read_spec(folder)
    if rounds is not None:
        tables = spec.resolved()
        assign(tables, f"run.rounds={rounds}")
        spec = check_spec(tables, source=str(folder.spec))
    with folder.locked():
        federation, engine = build(spec)
        if rounds is not None:
            folder.begin(spec.to_toml(), environment())
        return _finished(folder, federation, engine, spec, watcher)


def read_spec(folder: RunFolder) -> Spec:
    """Read the resolved spec of a run folder."""
    if not folder.spec.exists():
        raise RunError(f"{folder.path}: holds no run (there is no {folder.spec.name} in it)")
    tables = tomllib.loads(folder.spec.read_text(encoding="utf-8"))
    if not tables:
        raise RunError(f"{folder.path}: is a run from Python; call fedquilt.train(…, out=…) again to go on with it")
    return check_spec(tables, source=str(folder.spec))


def _finished(folder: RunFolder, federation: Federation, engine: Engine, spec: Spec, watcher: Watcher | None) -> Run:
    result = execute(federation, engine, spec.options, folder, watcher)
    if result.history.records:
        draw_run(folder.path, result.history, federation)
    return Run(folder.path, result)


def _from_tables(tables: Mapping[str, Any], sets: Iterable[str]) -> Spec:
    changed = copy.deepcopy(dict(tables))
    for assignment in sets:
        assign(changed, assignment)
    return check_spec(changed)


def _free_folder(spec: Spec) -> Path:
    name = Path(spec.source).stem
    for number in range(1, 10_000):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return path
    raise RunError("runs/: too many runs of that name; give a folder with --out")
