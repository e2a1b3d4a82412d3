"""Trains a federation round by round, keeping what a crash must not lose."""

from __future__ import annotations

import copy
import hashlib
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tomli_w
from torch import nn

from fedquilt.arguments import ArgumentError, Problem, check
from fedquilt.core.algorithm import Algorithm
from fedquilt.core.describe import describe
from fedquilt.core.driver import Measures, Record, rounds
from fedquilt.core.engine import Engine, Settling
from fedquilt.core.federation import Federation
from fedquilt.core.loss import with_loss
from fedquilt.core.params import ModelState, Tensors
from fedquilt.core.state import RunState
from fedquilt.data.data import Data
from fedquilt.engines import processes
from fedquilt.errors import FedquiltError, RunError
from fedquilt.experiment.client_fares import ClientFares
from fedquilt.experiment.environment import environment
from fedquilt.experiment.export import NAMES, names_of
from fedquilt.experiment.folder import MetricsWriter, RunFolder
from fedquilt.experiment.objective import Own, chosen_loss, chosen_metrics, require_accuracy, written
from fedquilt.experiment.spec import Options
from fedquilt.experiment.warm import warm
from fedquilt.metrics.curves import History
from fedquilt.metrics.diagnosis import diagnose as measure
from fedquilt.partition.partition import Partition
from fedquilt.partition.stored import to_bytes
from fedquilt.progress import counted


class Watcher(Protocol):
    """Is told how training goes."""

    def begin(self, history: History, last: int) -> None:
        """Training starts, or goes on after the rounds of `history`."""

    def heard(self, clients: int, total: int) -> None:
        """That many of a round's clients have answered."""

    def round(self, record: Record) -> None:
        """A round has ended."""


@dataclass(frozen=True, repr=False)
class Result:
    """A trained model and how it came about.

    A method that ends with several models, one for each group of clients, has them in `models`; `model` and `state` are
    then those of the first group. `run` is everything that the run carried: groups, server states, what clients keep.
    """

    history: History
    model: nn.Module
    state: ModelState
    digest: str
    interrupted: bool
    models: tuple[nn.Module, ...]
    run: RunState

    def __repr__(self) -> str:
        """Say how it went, not all that is in it."""
        newest = self.history.newest or {}
        name = next((name for name in ("accuracy", "loss") if newest.get(name) is not None), None)
        score = "" if name is None else f", {name} {newest[name]:.4f}"
        return f"Result({counted(len(self.history), 'round')}{score}, digest {self.digest[:12]}…)"


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
    checkpoint_seconds: float = 10.0,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    loss: str | Own | None = None,
    metrics: Sequence[str | Own] | None = None,
    start: str | Path | None = None,
    start_skip: Sequence[str] | None = None,
    trainable: int | Sequence[str] | None = None,
) -> Result:
    """Train your own model on your own data, and return the history and the trained model.

    The module that is given is not changed. With `out`, metrics and checkpoints are kept in that folder, and the same
    call goes on from there after an interruption.

    `loss` is a name, or a function of outputs and targets that returns one loss a prediction; `metrics` are names or such
    functions. `start`, `start_skip` and `trainable` are as in a spec: a safetensors file with the model's first values,
    what of it not to take, and the parts to train, or how many of the last layers.

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
    asked = {
        "rounds": rounds,
        "seed": seed,
        "eval_every": eval_every,
        "train_loss": train_loss,
        "diagnose": diagnose,
        "stop_at": stop_at,
        "checkpoint_seconds": checkpoint_seconds,
        "loss": None if loss is None else written(loss),
        "metrics": None if metrics is None else [written(metric) for metric in metrics],
        "start": None if start is None else str(Path(start).absolute()),
        "start_skip": None if start_skip is None else list(start_skip),
        "trainable": list(trainable) if isinstance(trainable, list | tuple) else trainable,
    }
    options = Options(**check(Options, asked, name="train"))
    _require("model", model, nn.Module, "a torch.nn.Module")
    _require("data", data, Data, "a fedquilt.Data; fedquilt.arrays(...) makes one")
    _require("partition", partition, Partition, "a fedquilt.Partition; fedquilt.Partition.of([[...], ...]) makes one")
    _require("method", method, Algorithm, "a method, such as fedquilt.fed_avg()")
    if engine is not None and not hasattr(engine, "open"):
        raise ArgumentError("train", [Problem("engine", f"must be an engine, such as inline(), got {engine!r}")])
    if start is not None or trainable is not None:
        model = copy.deepcopy(model)
        warm(model, options)
    method = method if loss is None else with_loss(method, chosen_loss(loss))
    measured = None if metrics is None else chosen_metrics(metrics)
    federation = Federation.of(model, data, partition, method, seed, measured)
    require_accuracy(options, federation)
    chosen = engine or processes()
    if out is None:
        return execute(federation, settled(chosen, federation, rounds), options, None, watcher)
    folder = RunFolder(Path(out))
    with folder.locked():
        chosen = _begin(folder, options, federation, chosen)
        return execute(federation, chosen, options, folder, watcher)


def settled(engine: Engine, federation: Federation, rounds: int) -> Engine:
    """Decide what an engine leaves open and a run's result depends on."""
    return engine.settled(federation, rounds) if isinstance(engine, Settling) else engine


def _require(key: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise ArgumentError("train", [Problem(key, f"must be {what}, got {value!r}")])


def _begin(folder: RunFolder, options: Options, federation: Federation, engine: Engine) -> Engine:
    """Write what a run from Python starts from, or make sure that a folder holds the same run.

    What was decided of the engine when the run began is not decided again.
    """
    about = {"federation": fingerprint(federation)}
    if folder.spec.exists():
        before = folder.tables().get("python", {})
        if "federation" not in before:
            raise RunError(f"{folder.path}: holds the run of a spec; go on with it by `fedquilt resume {folder.path}`")
        _require_same(folder, before["federation"], about["federation"])
        if isinstance(engine, Settling) and "compute" in before:
            if engine.where != before.get("where", engine.where):
                raise RunError(
                    f"{folder.path}: the run was begun with {before['where']}, and this is {engine.where}: "
                    "go on with the same device and precision, or choose another folder"
                )
            engine = engine.computing(before["compute"])
    else:
        engine = settled(engine, federation, options.rounds)
    if isinstance(engine, Settling):
        about |= {"compute": engine.compute, "where": engine.where}
    asked = {key: value for key, value in asdict(options).items() if value is not None}
    folder.begin(tomli_w.dumps({"run": asked, "python": about}), environment())
    folder.keep_partition(partial(stored_partition, federation, {}))
    return engine


def stored_partition(federation: Federation, made_by: dict[str, Any]) -> bytes:
    """Return who held what before any of it was taken away, as a file; `made_by` is the table of a spec."""
    data = federation.data
    return to_bytes(federation.given, data.train.y.numpy(), made_by, len(data.test))


def execute(
    federation: Federation,
    engine: Engine,
    options: Options,
    folder: RunFolder | None,
    watcher: Watcher | None = None,
) -> Result:
    """Run a federation to its last round, from where its folder left off.

    On Ctrl-C the rounds that are complete are saved and the result says `interrupted`.
    """
    run, last = federation.start(), _last(federation, options)
    _warn_of_too_few_rounds(federation, last)
    keeper = None
    if folder is not None:
        about = {"federation": fingerprint(federation), NAMES: names_of(federation.bench)} | _end(federation)
        run = _restored(folder, about, run)
        folder.forgive()
        keeper = _Keeper(
            folder, run.round, about, partial(digest, federation), options.checkpoint_seconds, federation.bench.frozen()
        )
    history = History(list(folder.history().records[: run.round]) if folder is not None else [])
    done = interrupted = False
    with ExitStack() as stack:
        if keeper is not None:
            stack.callback(keeper.metrics.close)
        try:
            # Workers are started before anything is displayed: a display may use threads, and a fork must not see them.
            session = stack.enter_context(engine.open(federation))
            if watcher is not None:
                watcher.begin(history, last)
            if _reached(history, options):
                return _result(federation, history, run, interrupted=False)
            heard = None if watcher is None else watcher.heard
            diagnosing = measure if options.diagnose else None
            measures = Measures(
                options.eval_every, options.train_loss, diagnosing, None if keeper is None else keeper.fares.note
            )
            # What the server itself computes is computed where the clients are.
            placed = engine.placed(federation) if isinstance(engine, Settling) else federation
            for after, record in rounds(placed, session, run, last, measures, heard):
                run = after
                history.records.append(record)
                _warn_once(history)
                _warn_of_odd_metrics(history)
                done = run.round == last or _reached(history, options)
                if keeper is not None:
                    keeper.keep(run, record, now=done)
                if watcher is not None:
                    watcher.round(record)
                if done:
                    break
        except KeyboardInterrupt:
            # Whoever presses Ctrl-C twice should not lose what the first one is about to save.
            stack.enter_context(_undisturbed())
            interrupted = not done
            if keeper is not None:
                keeper.catch_up()
        except FedquiltError as error:
            if keeper is not None:
                keeper.fail(str(error))
            raise
    return _result(federation, history, run, interrupted)


@contextmanager
def _undisturbed() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def fingerprint(federation: Federation) -> str:
    """Return a digest of what must not change between a run and its resumption."""
    data = federation.data
    about = (federation.seed, federation.algorithm, data.prepare, data.augment)
    sha = hashlib.sha256(describe(about).encode())
    sha.update(federation.layout.digest(federation.initial).encode())
    for name, tensor in federation.bench.frozen().items():
        sha.update(name.encode() + tensor.numpy().tobytes())
    for held in (federation.partition, federation.partition.test):
        for array in () if held is None else (held.indices, held.offsets):
            sha.update(np.ascontiguousarray(array, dtype=np.int64).data)
        if held is not None and held.noise is not None:
            sha.update(f"{held.noise.seed} {held.noise.split}".encode() + held.noise.std.tobytes())
    for split in (data.train, data.test):
        sha.update(split.x.contiguous().numpy().data)
        sha.update(split.y.contiguous().numpy().data)
    return sha.hexdigest()


def _warn_of_odd_metrics(history: History) -> None:
    """Warn of a metric that is not finite, the first time."""
    *earlier, record = history.records
    odd = {name for name, value in record.get("metrics", {}).items() if value is None}
    known = {name for before in earlier for name, value in before.get("metrics", {}).items() if value is None}
    for name in sorted(odd - known):
        warnings.warn(
            f"metric {name} is not a finite number after round {record['round']}; it is written as null",
            RuntimeWarning,
            stacklevel=3,
        )


def _warn_once(history: History) -> None:
    record = history.records[-1]
    if not record["dropped"] or any(before["dropped"] for before in history.records[:-1]):
        return
    first, count = record["dropped"][0], len(record["dropped"])
    others = f" (and {count - 1} more)" if count > 1 else ""
    effect = "" if record["applied"] else "; nobody was left and the model stays as it was"
    warnings.warn(
        f"client {first['client']} was left out of round {record['round']}{others}: {first['reason']}{effect}. "
        "Later ones are in the metrics.",
        RuntimeWarning,
        stacklevel=3,
    )


def _reached(history: History, options: Options) -> bool:
    accuracy = history.records[-1]["accuracy"] if history.records else None
    return options.stop_at is not None and accuracy is not None and accuracy >= options.stop_at


def _last(federation: Federation, options: Options) -> int:
    ends = federation.algorithm.last_round
    return options.rounds if ends is None else min(options.rounds, ends)


def _end(federation: Federation) -> dict[str, str]:
    """Say where a method ends by itself, for those who read the folder alone."""
    ends = federation.algorithm.last_round
    return {} if ends is None else {"last_round": str(ends)}


def _warn_of_too_few_rounds(federation: Federation, last: int) -> None:
    needed = getattr(federation.algorithm.course, "needs_rounds", 0)
    if last < needed:
        warnings.warn(
            f"the run has {counted(last, 'round')}, but its method changes course only in round {needed}: "
            "until then it is plain",
            RuntimeWarning,
            stacklevel=3,
        )


def _restored(folder: RunFolder, about: dict[str, str], run: RunState) -> RunState:
    latest = folder.latest()
    if latest is None:
        return run
    _require_same(folder, latest[1].get("federation"), about["federation"])
    return latest[0]


def _require_same(folder: RunFolder, before: str | None, now: str) -> None:
    if before != now:
        raise RunError(
            f"{folder.path}: holds a run of another federation (model, data, partition, method or seed differ); "
            "choose another folder"
        )


def digest(federation: Federation, run: RunState) -> str:
    """Return the SHA-256 of a run's model; of several, that of their digests."""
    digests = [federation.layout.digest(group.state.model) for group in run.groups]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _result(federation: Federation, history: History, run: RunState, interrupted: bool) -> Result:
    trained = tuple(federation.bench.finished(group.state.model) for group in run.groups)
    return Result(history, trained[0], run.groups[0].state.model, digest(federation, run), interrupted, trained, run)


class _Keeper:
    """Writes metrics and checkpoints: records first, so that a checkpoint never runs ahead of them."""

    def __init__(
        self,
        folder: RunFolder,
        start: int,
        about: dict[str, str],
        digest: Callable[[RunState], str],
        seconds: float,
        frozen: Tensors,
    ) -> None:
        self.metrics = MetricsWriter(folder, keep=start)
        self.fares = ClientFares()
        self._folder = folder
        self._about = about
        self._digest = digest
        self._seconds = seconds
        self._frozen = frozen
        self._newest: RunState | None = None
        self._saved = start
        self._writable = True
        self._when = time.monotonic()

    def keep(self, run: RunState, record: dict[str, Any], now: bool) -> None:
        with self._writing():
            self.metrics.append(record)
            self._newest = run
            if now:  # before the last checkpoint: a finished run has it
                self.fares.write(self._folder)
            if now or time.monotonic() - self._when >= self._seconds:
                self._save(run)

    def catch_up(self) -> None:
        """Save the newest round whose record is written: an interruption may have come before the last one's."""
        if self._newest is not None and self._newest.round > self._saved and self._writable:
            with self._writing():
                self._save(self._newest)

    def fail(self, why: str) -> None:
        """Save what there is, and note why the run could not go on."""
        self.catch_up()
        self._folder.fail(why)

    def _save(self, run: RunState) -> None:
        self.metrics.sync()
        self._folder.save(run, self._about | {"model": self._digest(run)}, self._frozen)
        self._saved, self._when = run.round, time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._writable = False
            raise FedquiltError(
                f"{self._folder.path}: cannot be written: {error.strerror}. What was saved before is good: put that right, "
                f"then go on with `fedquilt resume {self._folder.path}`"
            ) from None
