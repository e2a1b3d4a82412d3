"""Runs a spec into a run folder, and continues a run that was interrupted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedquilt.base import interrupts
from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.base.registry import engines
from fedquilt.base.text import html_table
from fedquilt.engines.default import AutoEngine, Chosen, chosen, in_words
from fedquilt.engines.executing import Executing
from fedquilt.experiment.build import build
from fedquilt.experiment.changes import assignment, change, names_first, put
from fedquilt.experiment.contents import Contents
from fedquilt.experiment.environment import environment
from fedquilt.experiment.execute import execute
from fedquilt.experiment.fingerprint import SETTINGS, fingerprint, require_same, written
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.result import Result
from fedquilt.experiment.spec import Spec, SpecTable, check_spec, load_spec, unchanged
from fedquilt.experiment.tracking.trackers import made_trackers
from fedquilt.experiment.watching import Watcher, Watchers, notify, together
from fedquilt.round.federation import Federation
from fedquilt.round.server import Server
from fedquilt.round.session import Engine, Settling, settled

Builder = Callable[[Spec], tuple[Federation | Server, Engine]]
"""Makes what a spec describes, and how it is run."""

FLOWER = "flower"
"""The engine of real sites."""


@dataclass(frozen=True)
class Run:
    """A run and its folder."""

    folder: Path
    result: Result

    def _repr_html_(self) -> str:
        """Show where it is and how it went, in a notebook."""
        return f"{html_table([], [('folder', str(self.folder))])}{self.result._repr_html_()}"


def run(
    spec: str | Path | Mapping[str, Any] | Spec,
    sets: Iterable[str] = (),
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    unsets: Iterable[str] = (),
    built: Builder | None = None,
) -> Run:
    """Run a spec (a file, or its tables) and return the result.

    `sets` are changes such as "method.lr=0.05"; `unsets` are keys such as "method.lr" that are taken out before that.
    Without `out`, the folder is `runs/<name of the spec>`, with a number behind it if that is taken. A spec of real sites
    is simulated, unless `built` makes the server of it.

    >>> import tempfile
    >>> tables = {
    ...     "run": {"rounds": 2},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "iid", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg"},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ended = run(tables, ["method.lr=0.5"], out=folder)
    ...     more = resume(folder, rounds=3)
    >>> len(ended.result.history), len(more.result.history)
    (2, 3)
    """
    checked = _checked(spec, sets, unsets)
    checked = checked if built is not None else _simulated(checked)
    watcher = _watched(checked, watcher)
    folder = RunFolder(Path(out) if out is not None else _free_folder(checked))
    if folder.spec.exists():
        raise RunError(
            f"{folder.path}: already holds a run; continue it with `fedquilt resume {folder.path}`, "
            "or choose another folder"
        )
    with folder.locked():
        # The spec is written first: from then on a run that is killed can be resumed.
        try:
            with interrupts.allowed():
                folder.begin(checked.to_toml(), environment())
                _notify_loading(watcher, checked)
                federation, engine = (built or build)(checked)
                checked, engine = _settled(checked, federation, engine, watcher)
        except (FedquiltError, KeyboardInterrupt):
            interrupts.caught()
            folder.abandon()
            raise
        folder.begin(checked.to_toml(), environment())
        return _finished(folder, federation, engine, checked, watcher)


def resume(
    path: str | Path,
    rounds: int | None = None,
    watcher: Watcher | None = None,
    from_start: bool = False,
    built: Builder | None = None,
    sets: Iterable[str] = (),
) -> Run:
    """Continue a run from its newest intact checkpoint; `rounds` makes it longer.

    `sets` are changes of its engine, such as "engine.name=processes" for a run that was begun on a cluster; those that
    would change the last bits of its result are refused.

    A run all of whose checkpoints are damaged is refused, unless it is to train again `from_start`: what the folder holds
    of the rounds so far is then set aside.

    >>> resume("runs/nothing-here")
    Traceback (most recent call last):
    fedquilt.base.errors.RunError: runs/nothing-here: there is no such folder; ...
    """
    folder = RunFolder(Path(path))
    found = folder.read_aloud()
    spec = spec_of(folder, found)
    if spec.parts["engine"].name == FLOWER and built is None:
        raise RunError(
            f"{folder.path}: is a run of real sites; continue it with `fedquilt resume {folder.path}` at the command line, "
            "where the server runs"
        )
    found.start(folder.path, from_start)  # refused before anything is changed
    watcher = _watched(spec, watcher)
    changed = [assignment(text) for text in sets]
    others = [key for key, _ in changed if not key.startswith("engine.")]
    if others:
        raise RunError(
            f"--set {others[0]}: of a run that goes on, only the engine can be changed; start a new run with it"
        )
    if rounds is not None or changed:
        tables = spec.resolved()
        for key, value in names_first([*changed, *([] if rounds is None else [("run.rounds", rounds)])]):
            put(tables, key, value)  # keys that only the engine before takes are left out
        if tables["engine"].get("compute") == "auto" and found.saved is not None:  # it was decided when the run began
            tables["engine"]["compute"] = found.tables["engine"].get("compute", "auto")
        before, spec = spec, check_spec(tables, source=str(folder.spec))
        if found.saved is not None:
            _require_same_bits(folder, before, spec)
        if rounds is not None and rounds < found.round:
            raise RunError(
                f"{folder.path}: has {found.round} rounds already; set --rounds to a larger number to continue it"
            )
    with folder.locked():
        _notify_loading(watcher, spec)
        federation, engine = (built or build)(spec)
        if isinstance(engine, AutoEngine) or spec.parts["engine"].arguments.get("compute") == "auto":
            # It was killed before that was decided.
            spec, engine = _settled(spec, federation, engine, watcher)
            folder.begin(spec.to_toml(), environment())
        elif isinstance(engine, Chosen):
            notify(watcher, "stage", f"engine: {in_words(engine, 'as asked' if changed else 'as before')}")
        if rounds is not None or changed or not found.spec_checked:
            if found.saved is not None:  # before the folder is changed
                now = {"federation": fingerprint(federation), SETTINGS: written(found.tables)}
                require_same(folder, found.saved.about, now)
            folder.begin(spec.to_toml(), environment())
        return _finished(folder, federation, engine, spec, watcher, from_start)


def _require_same_bits(folder: RunFolder, before: Spec, now: Spec) -> None:
    """Refuse an engine that computes otherwise than the one that the run began with."""
    was, is_now = (part.function(**part.arguments) for part in (before.parts["engine"], now.parts["engine"]))
    if not isinstance(was, Settling) or not isinstance(is_now, Settling) or was.compute == "auto":
        return
    old, new = (f"{engine.compute} ({engine.where})" for engine in (was, is_now))
    if old != new:
        raise RunError(
            f"{folder.path}: its rounds so far were computed {old}, and would be {new} from now on, with other bits than "
            "a run that is computed in one way; start a new run for that"
        )


def _watched(spec: Spec, watcher: Watcher | None) -> Watchers | None:
    """Return all who watch a run: who asked for it, and the trackers that the spec names."""
    options = spec.options
    home = None if options.import_from is None else Path(options.import_from)
    return together([watcher, *made_trackers(options.track, home, f"{spec.source}: [run] track")])


def _notify_loading(watcher: Watcher | None, spec: Spec) -> None:
    notify(watcher, "stage", f"loading {spec.parts['data'].name}")


def _simulated(spec: Spec) -> Spec:
    """Return a spec that runs here: in the place of real sites, processes."""
    if spec.parts["engine"].name != FLOWER:
        return spec
    return check_spec(spec.resolved() | {"engine": {"name": "processes"}}, spec.source, spec.folder)


def _settled(
    spec: Spec, federation: Federation | Server, engine: Engine, watcher: Watcher | None
) -> tuple[Spec, Engine]:
    """Decide what the engine leaves open, and put it into the spec: a resumed run does not decide again."""
    if isinstance(federation, Server):  # whose sites have decided
        return spec, engine
    if isinstance(engine, AutoEngine):
        found, why = chosen(engine, federation, spec.options.rounds, partial(notify, watcher, "stage"))
        notify(watcher, "stage", f"engine: {in_words(found, why)}")
        return with_engine(spec, found), found
    engine = settled(engine, federation, spec.options.rounds)
    part = spec.parts["engine"]
    if not isinstance(engine, Settling) or "compute" not in part.arguments:
        return spec, engine
    decided = replace(part, arguments=part.arguments | {"compute": engine.compute})
    return replace(spec, parts=spec.parts | {"engine": decided}), engine


def with_engine(spec: Spec, engine: Chosen) -> Spec:
    """Return the spec with an engine that was chosen for it."""
    arguments = engine.table
    name = arguments.pop("name")
    return replace(spec, parts=spec.parts | {"engine": SpecTable(name, engines[name], arguments)})


def keeping_engine(spec: Spec, before: Spec) -> Spec:
    """Return a spec without an engine of its own with what was chosen when its run began, and with its workers.

    What the spec asks for stays: its device and precision, and whether to compile.
    """
    asked, had = (each.parts["engine"].function(**each.parts["engine"].arguments) for each in (spec, before))
    if not isinstance(asked, AutoEngine) or isinstance(had, AutoEngine) or not isinstance(had, Executing):
        return spec
    compute = had.execution.compute if asked.execution.compute == "auto" else asked.execution.compute
    return with_engine(spec, asked.keeping(replace(asked.execution, block=had.execution.block, compute=compute)))


def read_spec(folder: RunFolder) -> Spec:
    """Read the resolved spec of a run folder."""
    return spec_of(folder, folder.read_aloud())


def spec_of(folder: RunFolder, found: Contents) -> Spec:
    """Check the spec of a run folder that was read."""
    if "python" in found.tables:
        raise RunError(f"{folder.path}: is a run from Python; call fedquilt.train(…, out=…) again to continue it")
    return check_spec(found.tables, source=str(folder.spec))


def _finished(
    folder: RunFolder,
    federation: Federation | Server,
    engine: Engine,
    spec: Spec,
    watcher: Watcher | None,
    from_start: bool = False,
) -> Run:
    if isinstance(federation, Federation):  # a server does not know who holds which examples
        folder.keep_partition(federation, spec.resolved()["partition"])
    result = execute(federation, engine, spec.options, folder, watcher, from_start, spec.resolved())
    return Run(folder.path, result)


def _checked(spec: str | Path | Mapping[str, Any] | Spec, sets: Iterable[str], unsets: Iterable[str]) -> Spec:
    if isinstance(spec, Spec):
        return unchanged(spec, sets, unsets)
    if isinstance(spec, str | Path):
        return load_spec(spec, sets, unsets)
    return check_spec(change(copy.deepcopy(dict(spec)), sets, unsets))


def _free_folder(spec: Spec) -> Path:
    name = Path(spec.source).stem
    for number in range(1, 10_000):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return path
    raise RunError(f"runs/: has 9,999 runs called {name} already; choose a folder with --out")
