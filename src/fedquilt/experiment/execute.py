"""Runs a federation round by round, from where its folder left off."""

from __future__ import annotations

import signal
import warnings
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from functools import partial
from typing import Protocol, runtime_checkable

from fedquilt.algorithm.state import RunState
from fedquilt.analysis.curves import History
from fedquilt.analysis.diagnosis import diagnose
from fedquilt.analysis.divergence import divergence
from fedquilt.base import interrupts
from fedquilt.base.errors import FedquiltError
from fedquilt.experiment.contents import ASIDE
from fedquilt.experiment.export import NAMES, names_of
from fedquilt.experiment.fingerprint import SETTINGS, digest, fingerprint, require_same, written
from fedquilt.experiment.folder import MetricsWriter, RunFolder
from fedquilt.experiment.notices import (
    warn_of_divergence,
    warn_of_left_out,
    warn_of_odd_metrics,
    warn_of_single_examples,
    warn_of_too_few_rounds,
    warn_of_untested,
)
from fedquilt.experiment.result import Result, result_of
from fedquilt.experiment.run_writer import RunWriter
from fedquilt.experiment.spec import Options
from fedquilt.experiment.stopping import early_stop
from fedquilt.experiment.storage import storing
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures, Record
from fedquilt.round.session import Engine, Session, Settling


class Watcher(Protocol):
    """Is told how training goes."""

    def begin(self, history: History, last: int) -> None:
        """Training starts, or goes on after the rounds of `history`."""

    def heard(self, clients: int, total: int) -> None:
        """That many of a round's clients have answered."""

    def round(self, record: Record) -> None:
        """A round has ended."""


@runtime_checkable
class StageWatcher(Watcher, Protocol):
    """A watcher that is also told what goes on before the first round."""

    def stage(self, text: str) -> None:
        """Something that takes a while begins."""


def tell_stage(watcher: Watcher | None, text: str) -> None:
    """Tell a watcher what goes on before the first round, if it has a method `stage` to be told by."""
    if isinstance(watcher, StageWatcher):
        watcher.stage(text)


def execute(
    federation: Federation,
    engine: Engine,
    options: Options,
    folder: RunFolder | None,
    watcher: Watcher | None = None,
    from_start: bool = False,
) -> Result:
    """Run a federation to its last round, from where its folder left off.

    A run that has diverged ends there, unless its options say to go on, and the result says why.
    On Ctrl-C the rounds that are complete are saved and the result says `interrupted`. With `from_start` it begins with the
    first round again, and what the folder holds of the rounds so far is set aside.
    """
    last = _last(federation, options)
    warn_of_too_few_rounds(federation, last)
    warn_of_single_examples(federation)
    done = interrupted = False
    with interrupts.taken(signal.SIGINT), ExitStack() as stack:
        # From here on signals wait, but for what `allowed` encloses: no second one breaks off what the first one saves.
        interrupts.hold()
        run, history, run_writer = _begun(federation, options, folder, from_start)
        if run_writer is not None:
            stack.callback(run_writer.metrics.close)
        try:
            with interrupts.allowed():
                # Workers are started before anything is displayed: a display may use threads, and a fork must not see them.
                session = stack.enter_context(_opened(engine, federation, watcher))
                if watcher is not None:
                    watcher.begin(history, last)
                if _stopped(history, options, last):
                    return result_of(federation, history, run, interrupted=False, diverged=divergence(history, last))
                heard = None if watcher is None else watcher.heard
                # What the server itself computes is computed where the clients are.
                placed = engine.placed(federation) if isinstance(engine, Settling) else federation
                diagnosing = partial(diagnose, placed) if options.diagnose else None
                measures = Measures(
                    options.eval_every,
                    options.train_loss,
                    diagnosing,
                    None if run_writer is None else run_writer.fares.note,
                    validation=len(federation.validation_rows) > 0,
                )
                for after, record in rounds(placed.server, session, run, last, measures, heard):
                    with interrupts.held():
                        run = after
                        history.records.append(record)
                        warn_of_left_out(history)
                        warn_of_untested(history)
                        warn_of_odd_metrics(history)
                        warn_of_divergence(history, options, last)
                        done = run.round == last or _stopped(history, options, last)
                        if run_writer is not None:
                            run_writer.keep(run, record, now=done)
                        if watcher is not None:
                            watcher.round(record)
                    if done:
                        break
        except KeyboardInterrupt:
            interrupts.hold()
            interrupted = not done
            if run_writer is not None:
                run_writer.catch_up()
        except BaseException as error:
            interrupts.hold()
            if run_writer is not None:
                run_writer.fail(str(error) if isinstance(error, FedquiltError) else None)
            raise
    return result_of(federation, history, run, interrupted, None if interrupted else divergence(history, last))


def _opened(engine: Engine, federation: Federation, watcher: Watcher | None) -> AbstractContextManager[Session]:
    if isinstance(engine, Settling) and engine.compute == "compiled":
        tell_stage(watcher, "compiling the local steps, which can take a minute the first time")
    return engine.open(federation)


def _begun(
    federation: Federation, options: Options, folder: RunFolder | None, from_start: bool
) -> tuple[RunState, History, RunWriter | None]:
    """Return the state and the records to go on from, and what keeps those to come."""
    if folder is None:
        return federation.start(), History([]), None
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
            f"{folder.path}: no checkpoint is there to go on from: training starts again from the first round; the records "
            f"so far are kept in {folder.path / ASIDE}",
            RuntimeWarning,
            stacklevel=3,
        )
    records = [record for record in found.history.records if record["round"] <= run.round]
    folder.forgive()
    with storing(folder.path):
        # Stale checkpoints must not be taken for the newest ones when the run goes on.
        for path in folder.checkpoints if from_start else found.unusable:
            folder.set_aside(path)
        metrics = MetricsWriter(folder, records, aside=from_start or bool(found.damaged_lines) or saved is None)
    run_writer = RunWriter(
        folder,
        metrics,
        run.round,
        about,
        partial(digest, federation),
        options.checkpoint_seconds,
        federation.replica.frozen(),
    )
    return run, History(records, run.round), run_writer


def _stopped(history: History, options: Options, last: int) -> bool:
    if early_stop(history.records, asdict(options)) is not None:
        return True
    return options.on_divergence == "stop" and divergence(history, last) is not None


def _last(federation: Federation, options: Options) -> int:
    ends = federation.algorithm.course.last_round
    return options.rounds if ends is None else min(options.rounds, ends)


def _end(federation: Federation) -> dict[str, str]:
    """Say where a method ends by itself, for those who read the folder alone."""
    ends = federation.algorithm.course.last_round
    return {} if ends is None else {"last_round": str(ends)}
