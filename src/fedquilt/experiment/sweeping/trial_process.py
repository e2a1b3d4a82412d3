"""One trial in a process of its own: runs it, or continues it, and reports how it goes.

What the run says, warnings and tracebacks too, goes into `log.txt` in the trial's folder; events go through a pipe. When
nobody reads that any more, the sweep was killed: the trial saves what is done and ends, as on Ctrl-C.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from fedquilt.analysis.curves import History
from fedquilt.base import interrupts
from fedquilt.base.errors import FedquiltError, reason_of
from fedquilt.engines.allocator import keep_freed_memory
from fedquilt.experiment.contents import LOG
from fedquilt.experiment.environment import environment
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.imports import no_import
from fedquilt.experiment.progress import Lines
from fedquilt.experiment.run import Run, keeping_engine, read_spec, resume, run
from fedquilt.experiment.spec import Spec, check_spec
from fedquilt.experiment.sweeping.executors import Advanced, Begun, Ended, Order, State, TrialEvent, written
from fedquilt.experiment.sweeping.standing import standing
from fedquilt.experiment.toml import parse
from fedquilt.experiment.watching import Watcher


def perform(order: Order, pipe: int) -> None:
    """Run a trial to its end, and report on it through a pipe; the caller's process has nothing else to do."""
    keep_freed_memory()  # it may train clients itself
    interrupts.take(*interrupts.SIGNALS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts.SIGNALS)
    try:
        with interrupts.allowed():
            how = _performed(order, pipe)
    except KeyboardInterrupt:
        interrupts.caught()
        how = "interrupted"
    interrupts.ignore(*interrupts.SIGNALS)
    _report(pipe, Ended(order.number, how, _memory()), last=True)


def _performed(order: Order, pipe: int) -> State:
    folder = RunFolder(Path(order.folder))
    try:
        with ExitStack() as stack:
            stack.enter_context(_logged(folder.path))
            if order.no_import:
                stack.enter_context(no_import())
            while folder.running():  # of a sweep that was killed: it is about to save and to end
                time.sleep(0.1)
            spec = check_spec(parse(order.spec), order.source, None if order.home is None else Path(order.home))
            found = standing(folder.path, spec, thorough=True)
            if found.kind in ("finished", "diverged"):
                return "diverged" if found.kind == "diverged" else "finished"
            if found.kind == "other":
                print(f"{order.name}: is run again, since {found.why}; the run before is set aside")
                RunFolder(folder.path.parent).set_aside(folder.path)
                stack.enter_context(_logged(folder.path))
            ended = _run(folder, spec, found.kind, _Reporter(order, pipe))
        return "interrupted" if ended.result.interrupted else "diverged" if ended.result.diverged else "finished"
    except Exception as error:
        interrupts.caught()
        with _logged(folder.path):
            known = isinstance(error, FedquiltError)
            print(f"error: {error}" if known else "".join(traceback.format_exception(error)))
        folder.fail(str(error) if known else reason_of(error))
        return "failed"


def _run(folder: RunFolder, spec: Spec, kind: str, watcher: _Reporter) -> Run:
    if kind in ("shorter", "unfinished"):
        # It may end elsewhere now, and be trained by other workers; nothing else differs.
        spec = keeping_engine(spec, read_spec(folder))
        with folder.locked():
            folder.begin(spec.to_toml(), environment())
        return resume(folder.path, watcher=watcher)
    return run(spec, out=folder.path, watcher=watcher)


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """Send what this process and its children write into the trial's log."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("ab", buffering=0) as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
    warnings.showwarning = _warn
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", flush=True)


class _Reporter(Watcher):
    """A watcher that writes the log and reports rounds."""

    def __init__(self, order: Order, pipe: int) -> None:
        self._number, self._pipe = order.number, pipe
        self._lines = Lines(Console(file=sys.stdout, width=200, emoji=False), time.strftime("%H:%M:%S ") + order.name)
        self._readers = select.poll()
        self._readers.register(pipe, 0)

    def stage(self, text: str) -> None:
        """Write it down."""
        self._lines.stage(text)
        sys.stdout.flush()

    def begin(self, history: History, last: int) -> None:
        """Report where the trial is."""
        self._lines.begin(history, last)
        sys.stdout.flush()
        best, lowest = history.best, history.lowest
        event = Begun(self._number, history.last, last, best[1] if best else None, lowest[1] if lowest else None)
        _report(self._pipe, event)

    def heard(self, clients: int, total: int) -> None:
        """See whether the sweep is still there: rounds may be long."""
        if self._readers.poll(0):
            raise KeyboardInterrupt

    def round(self, record: dict[str, Any]) -> None:
        """Report the round."""
        self._lines.round(record)
        sys.stdout.flush()
        scores = record["accuracy"], record["loss"], record.get("validation_accuracy")
        _report(self._pipe, Advanced(self._number, record["round"], *scores))


def _report(pipe: int, event: TrialEvent, last: bool = False) -> None:
    try:
        os.write(pipe, written(event))
    except OSError:
        if not last:
            raise KeyboardInterrupt from None


def _memory() -> int | None:
    """Return how much memory this process and the largest of its children have taken together, at most."""
    try:
        import resource
    except ImportError:  # not there on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
