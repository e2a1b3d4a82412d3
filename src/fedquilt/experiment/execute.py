"""Runs a federation round by round, from where its folder left off."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import MappingProxyType
from typing import Any

from fedquilt.algorithm.state import RunState
from fedquilt.analysis.curves import History
from fedquilt.analysis.diagnosis import diagnose
from fedquilt.analysis.standing import Standing
from fedquilt.base import interrupts
from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.engines.executing import Executing
from fedquilt.experiment.contents import ASIDE, number_of
from fedquilt.experiment.environment import environment
from fedquilt.experiment.export import NAMES, names_of
from fedquilt.experiment.fingerprint import SETTINGS, digest, fingerprint, require_same, written
from fedquilt.experiment.folder import MetricsWriter, RunFolder
from fedquilt.experiment.notices import warn_of_single_examples, warn_of_too_few_rounds
from fedquilt.experiment.options import Options
from fedquilt.experiment.result import Result
from fedquilt.experiment.run_writer import RunWriter
from fedquilt.experiment.storage import storing
from fedquilt.experiment.under_way import UnderWay
from fedquilt.experiment.watching import AboutRun, Watcher, notify
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures, Record
from fedquilt.round.server import Server
from fedquilt.round.session import Engine, Recorded, Session, Settling


def execute(
    federation: Federation | Server,
    engine: Engine,
    options: Options,
    folder: RunFolder | None,
    watcher: Watcher | None = None,
    from_start: bool = False,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Result:
    """Run a federation to its last round, from where its folder left off; watchers are given its `settings`.

    The server's view of it is enough, where the engine runs clients elsewhere.

    A run that has diverged ends there, unless its options say to continue, and the result says why.
    On Ctrl-C the rounds that are complete are saved and the result says `interrupted`. With `from_start` it begins with the
    first round again, and what the folder holds of the rounds so far is set aside.
    """
    last = _last(federation, options)
    warn_of_too_few_rounds(federation, last)
    warn_of_single_examples(federation)
    interrupted = False
    with interrupts.taken(signal.SIGINT), ExitStack() as stack:
        # From here on signals wait, but for what `allowed` encloses: no second one breaks off what the first one saves.
        interrupts.hold()
        under_way, run_writer = _begun(federation, options, last, folder, from_start)
        if run_writer is not None:
            stack.callback(run_writer.metrics.close)
        try:
            with interrupts.allowed():
                # Workers are started before anything is displayed: a display may use threads, and a fork must not see them.
                session = stack.enter_context(_opened(engine, federation, watcher))
                over = under_way.over()
                if folder is not None and isinstance(session, Recorded) and session.about:
                    folder.describe({**environment(), **session.about})
                if not over:
                    notify(watcher, "start", _about(federation, folder, settings))
                notify(watcher, "begin", under_way.history, last)
                if over:
                    return under_way.result(interrupted=False)
                heard = partial(notify, watcher, "heard") if hasattr(watcher, "heard") else None
                # What the server itself computes is computed where the clients are.
                whole = federation if isinstance(federation, Federation) else None
                placed = engine.placed(whole) if isinstance(engine, Settling) and whole is not None else federation
                diagnosing = partial(diagnose, placed) if options.diagnose and isinstance(placed, Federation) else None
                measures = Measures(
                    options.eval_every,
                    options.train_loss,
                    diagnosing,
                    None if run_writer is None else run_writer.client_accuracies.note,
                    validation=federation.server.split_sizes.get("validation", 0) > 0,
                )
                for after, record in rounds(placed.server, session, under_way.run, last, measures, heard):
                    with interrupts.held():
                        under_way.take(after, record)
                        done = under_way.over()
                        if run_writer is not None:
                            run_writer.keep(after, record, under_way.best, now=done)
                        notify(watcher, "round", record)
                    if done:
                        break
        except KeyboardInterrupt:
            interrupts.caught()
            interrupted = not under_way.over()
            if run_writer is not None:
                run_writer.catch_up()
        except BaseException as error:
            interrupts.caught()
            if run_writer is not None:
                run_writer.fail(str(error) if isinstance(error, FedquiltError) else None)
            notify(watcher, "end", None)
            raise
        result = under_way.result(interrupted)
        notify(watcher, "end", result)
    return result


def _opened(
    engine: Engine, federation: Federation | Server, watcher: Watcher | None
) -> AbstractContextManager[Session]:
    if isinstance(engine, Executing) and engine.execution.whole(federation):
        notify(watcher, "stage", "compiling the local steps, which can take a minute the first time")
    # An engine of real sites needs the server's view alone; which of the two it is given, `built` has decided.
    return engine.open(federation)  # type: ignore[arg-type]


def _about(federation: Federation | Server, folder: RunFolder | None, settings: Mapping[str, Any]) -> AboutRun:
    path = None if folder is None else folder.path
    return AboutRun(federation.algorithm.name if path is None else path.absolute().name, path, settings)


def _begun(
    federation: Federation | Server, options: Options, last: int, folder: RunFolder | None, from_start: bool
) -> tuple[UnderWay, RunWriter | None]:
    """Return the state and the records to continue from, and what keeps those to come."""
    if folder is None:
        return UnderWay(federation, options, last, federation.start(), History([])), None
    about = {"federation": fingerprint(federation), NAMES: names_of(federation.replica)} | _end(federation)
    found = folder.read_aloud()
    about[SETTINGS] = written(found.tables)
    saved = found.start(folder.path, from_start)
    run = federation.start()
    if saved is not None:
        require_same(folder, saved.about, about)
        run = saved.run
    elif found.history.records and not from_start:
        warnings.warn(
            f"{folder.path}: there is no checkpoint to continue from: training starts again from the first round; "
            f"the records so far are moved to {folder.path / ASIDE}",
            RuntimeWarning,
            stacklevel=3,
        )
    records = [record for record in found.history.records if record["round"] <= run.round]
    folder.forgive()
    with storing(folder.path):
        # Stale checkpoints must not be taken for the newest ones when the run continues.
        for path in (*folder.checkpoints, *folder.bests) if from_start else found.unusable:
            folder.set_aside(path)
        metrics = MetricsWriter(folder, records, aside=from_start or bool(found.damaged_lines) or saved is None)
    best = _best_so_far(folder, records, run) if options.keep == "best" else None
    run_writer = RunWriter(
        folder,
        metrics,
        run.round,
        about,
        partial(digest, federation),
        options.checkpoint_seconds,
        federation.replica.frozen(),
        None if best is None else best.round,
    )
    return UnderWay(federation, options, last, run, History(records, run.round), best), run_writer


def _best_so_far(folder: RunFolder, records: Sequence[Record], run: RunState) -> RunState | None:
    """Return the best state of the rounds to go on from, and remove those of rounds that are done again."""
    with storing(folder.path):
        for path in folder.bests:
            if number_of(path) > run.round:
                path.unlink()
    best = Standing.of(records).best
    if best is None:
        return None
    try:
        found = folder.best()
    except RunError:  # which was said when the folder was read
        found = None
    if found is not None and found.run.round == best.round:
        return found.run
    warnings.warn(
        f"{folder.path}: the best model so far, of round {best.round}, is not there any more, or is damaged; the next one "
        "that is better is kept",
        RuntimeWarning,
        stacklevel=3,
    )
    return None


def _last(federation: Federation | Server, options: Options) -> int:
    ends = federation.algorithm.course.last_round
    return options.rounds if ends is None else min(options.rounds, ends)


def _end(federation: Federation | Server) -> dict[str, str]:
    """Say where a method ends by itself, for those who read the folder alone."""
    ends = federation.algorithm.course.last_round
    return {} if ends is None else {"last_round": str(ends)}
