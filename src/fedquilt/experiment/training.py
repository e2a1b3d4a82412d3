"""Training from Python: a user's own model and data, with or without a folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tomli_w
from torch import nn

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.loss import with_loss
from fedquilt.analysis.standing import ending
from fedquilt.base.arguments import ArgumentError, Problem, check
from fedquilt.base.errors import RunError
from fedquilt.base.registry import engines
from fedquilt.compute.replica import copied
from fedquilt.data.data import Data
from fedquilt.engines.default import AutoEngine, auto, in_words
from fedquilt.engines.default import chosen as chosen_engine
from fedquilt.engines.executing import Executing
from fedquilt.engines.inline import InlineEngine
from fedquilt.engines.processes import ProcessEngine
from fedquilt.experiment.environment import environment
from fedquilt.experiment.execute import execute
from fedquilt.experiment.fingerprint import fingerprint, require_same
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.objective import (
    OWN_LOSS,
    OwnFunction,
    chosen_loss,
    chosen_metrics,
    chosen_validation,
    registered_loss,
    require_accuracy,
    written,
)
from fedquilt.experiment.options import Options
from fedquilt.experiment.progress import default_display
from fedquilt.experiment.result import Result
from fedquilt.experiment.tracking.trackers import made_trackers
from fedquilt.experiment.warm import warm
from fedquilt.experiment.watching import Watcher, notify, together
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.session import Engine, Settling, settled
from fedquilt.simulate.simulation import Simulation, combined

AS_IN_A_SPEC: dict[str, Callable[[Any], Any]] = {
    "loss": written,
    "metrics": lambda metrics: [written(metric) for metric in metrics],
    "track": list,
    "start": lambda start: str(Path(start).absolute()),
    "start_skip": list,
    "trainable": lambda trainable: list(trainable) if isinstance(trainable, list | tuple) else trainable,
}
"""Options that Python may give in more ways than a spec can, and how they are written there."""


def train(
    model: nn.Module,
    data: Data,
    partition: Partition,
    method: Algorithm,
    rounds: int,
    seed: int = 0,
    engine: Engine | None = None,
    eval_every: int = 1,
    train_loss: bool = False,
    diagnose: bool = False,
    stop_at: float | None = None,
    validation: float | None = None,
    folds: int | None = None,
    fold: int | None = None,
    patience: int | None = None,
    stop_after_seconds: float | None = None,
    keep: Literal["last", "best"] = "last",
    checkpoint_seconds: float = 10.0,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    progress: bool | None = None,
    track: Sequence[str] | None = None,
    loss: str | OwnFunction | None = None,
    metrics: Sequence[str | OwnFunction] | None = None,
    start: str | Path | None = None,
    start_skip: Sequence[str] | None = None,
    trainable: int | Sequence[str] | None = None,
    simulate: Sequence[Simulation] = (),
    client_seconds: float | None = None,
    on_divergence: Literal["stop", "go_on"] = "stop",
    from_start: bool = False,
) -> Result:
    """Train your own model on your own data, and return the history and the trained model.

    The module that is given is not changed. With `out`, that folder is a run folder as the command line writes it, and the
    same call continues from there after an interruption. With `from_start` it begins with the first round again, and what
    the folder holds of the rounds so far is set aside: a run all of whose checkpoints are damaged goes on in no other way.

    How training goes is shown on a terminal and in a notebook; `progress=False` shows nothing, and `progress=True` writes
    lines elsewhere too. A `watcher` is notified instead (see `Watcher`), and so are the tools that `track` names,
    as in a spec.

    `loss` is a name, or a function of outputs and targets that returns one loss per prediction; `metrics` are names or such
    functions. `start`, `start_skip` and `trainable` are as in a spec: a safetensors file with the model's first values,
    what of it not to take, and the parts to train, or how many of the last layers. `simulate` is who shows up and how
    faithfully, as `[dropout(0.1), stragglers(deadline=60.0)]`. `client_seconds` is how long a client may take, by the
    clock, before it is left out of the round. A run that diverges stops, with a warning, and its result's `diverged` says
    why; `on_divergence="go_on"` runs all rounds all the same. It also stops early at the accuracy `stop_at`, after
    `patience` rounds that brought no better one, and once its rounds have taken `stop_after_seconds`.

    >>> import numpy as np, torch
    >>> from fedquilt import arrays, fed_avg, iid, inline, train
    >>> x = np.random.default_rng(0).normal(size=(60, 2)).astype("float32")
    >>> y = (x[:, 0] > 0).astype("int64")
    >>> data = arrays(x[:40], y[:40], x[40:], y[40:])
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(2, 2)
    >>> result = train(model, data, iid(y[:40], clients=4), fed_avg(lr=0.5), rounds=5, engine=inline())
    >>> len(result.history), result.history.accuracy[-1] > 0.8
    (5, True)
    """
    options = _options(locals())
    _require("model", model, nn.Module, "a torch.nn.Module")
    _require("data", data, Data, "a fedquilt.Data; create one with fedquilt.arrays(...)")
    _require(
        "partition", partition, Partition, "a fedquilt.Partition; create one with fedquilt.Partition.of([[...], ...])"
    )
    _require("method", method, Algorithm, "a method, such as fedquilt.fed_avg()")
    for simulation in simulate:
        _require("simulate", simulation, Simulation, "a list of simulations, such as [fedquilt.dropout(0.1)]")
    if engine is not None and not hasattr(engine, "open"):
        raise ArgumentError("train", [Problem("engine", f"must be an engine, such as inline(), got {engine!r}")])
    trackers = made_trackers(track, where="train: track")
    if start is not None or trainable is not None:
        model = copied(model)
        warm(model, options)
    method = method if loss is None else with_loss(method, chosen_loss(loss))
    measured = None if metrics is None else chosen_metrics(metrics)
    simulation = combined(simulate)
    validating = chosen_validation(options)
    federation = Federation.of(
        model, data, partition, method, seed, measured, simulation, options.client_seconds, validating
    )
    require_accuracy(options, federation)
    chosen = engine or auto()
    title = method.name if out is None else Path(out).absolute().name
    display = default_display(title, False if progress is None and watcher is not None else progress)
    watchers = together([display, watcher, *trackers])
    try:
        if out is None:
            engine = _settled(chosen, federation, rounds, watchers)
            return _warned(execute(federation, engine, options, None, watchers, settings=_tables(options, federation)))
        folder = RunFolder(Path(out))
        with folder.locked():
            chosen, tables = _begin(folder, options, federation, chosen, from_start, watchers)
            result = execute(federation, chosen, options, folder, watchers, from_start, tables)
            return _warned(result)
    finally:
        if display is not None:
            display.close()


def _options(given: dict[str, Any]) -> Options:
    """Return the options that `train` was given, as a spec's `[run]` has them."""
    asked = {field.name: given[field.name] for field in fields(Options) if field.name in given}
    asked |= {key: write(asked[key]) for key, write in AS_IN_A_SPEC.items() if asked[key] is not None}
    return Options(**check(Options, asked, name="train"))


def _warned(result: Result) -> Result:
    """Warn of a run that has diverged: whoever calls from Python sees no exit code."""
    if result.diverged is not None:
        warnings.warn(ending(result.diverged), RuntimeWarning, stacklevel=3)
    return result


def _require(key: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise ArgumentError("train", [Problem(key, f"must be {what}, got {value!r}")])


def _tables(options: Options, federation: Federation) -> dict[str, Any]:
    """Describe a run from Python as a spec would, as far as it can be: what things are called, and the options."""
    names = {
        "data": federation.data.name,
        "model": type(federation.replica.module).__name__,
        "method": federation.algorithm.name,
    }
    asked = {key: value for key, value in asdict(options).items() if value is not None}
    return {"run": asked} | {table: {"name": name} for table, name in names.items()}


def _begin(
    folder: RunFolder,
    options: Options,
    federation: Federation,
    engine: Engine,
    from_start: bool,
    watcher: Watcher | None,
) -> tuple[Engine, dict[str, Any]]:
    """Write what a run from Python starts from, or make sure that a folder holds the same run.

    What was decided of the engine when the run began is not decided again. Return it, and the tables that were written.
    """
    about = {"federation": fingerprint(federation)}
    if folder.spec.exists():
        found = folder.read_aloud()
        before = found.tables.get("python", {})
        if "federation" not in before:
            raise RunError(f"{folder.path}: holds the run of a spec; continue it with `fedquilt resume {folder.path}`")
        require_same(folder, before, about)
        found.start(folder.path, from_start)  # refused before anything is changed
        if isinstance(engine, AutoEngine):
            engine = _kept(engine, found.tables.get("engine"))
        if isinstance(engine, Settling) and "compute" in before:
            engine = engine.computing(before["compute"])
            assert isinstance(engine, Settling)
            if engine.where != before.get("where", engine.where):
                raise RunError(
                    f"{folder.path}: the run was started with {before['where']}, but this is {engine.where}: "
                    "continue with the same device, precision and block, or choose another folder"
                )
    else:
        engine = _settled(engine, federation, options.rounds, watcher)
    if isinstance(engine, Settling):
        about |= {"compute": engine.compute, "where": engine.where}
    about["loss"] = registered_loss(federation.algorithm.loss) or OWN_LOSS
    decided = {"engine": engine.table} if isinstance(engine, ProcessEngine | InlineEngine) else {}
    tables = _tables(options, federation) | decided | {"python": about}
    folder.begin(tomli_w.dumps(tables), environment())
    folder.keep_partition(federation, {})
    return engine, tables


def _settled(engine: Engine, federation: Federation, rounds: int, watcher: Watcher | None) -> Engine:
    """Decide what the engine leaves open; say which one was chosen where none was given."""
    if not isinstance(engine, AutoEngine):
        return settled(engine, federation, rounds)
    found, why = chosen_engine(engine, federation, rounds, partial(notify, watcher, "stage"))
    notify(watcher, "stage", f"engine: {in_words(found, why)}")
    return found


def _kept(asked: AutoEngine, table: dict[str, Any] | None) -> Engine:
    """Return the engine that was chosen when a run began; before any was, clients were trained one by one."""
    if table is None:
        return asked.keeping(asked.execution)
    had = engines[table["name"]](**{key: value for key, value in table.items() if key != "name"})
    return asked.keeping(had.execution) if isinstance(had, Executing) else asked
