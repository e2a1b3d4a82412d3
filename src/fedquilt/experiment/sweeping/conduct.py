"""Conducts a sweep: starts trials as others end, notes what they report, and ends cleanly on Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedquilt.base import interrupts
from fedquilt.base.errors import FedquiltError
from fedquilt.base.text import counted
from fedquilt.experiment.contents import ASIDE, LOG
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.imports import importing_refused
from fedquilt.experiment.summary import quiet_summary
from fedquilt.experiment.sweeping.board import Board, TrialProgress
from fedquilt.experiment.sweeping.display import SweepWatcher
from fedquilt.experiment.sweeping.executors import ENDED, Advanced, Begun, Ended, Executor, Order, State
from fedquilt.experiment.sweeping.jobs import Jobs, jobs_for
from fedquilt.experiment.sweeping.local import LocalExecutor
from fedquilt.experiment.sweeping.sources import Source
from fedquilt.experiment.sweeping.standing import TrialStanding, standing

TICK = 0.5
"""Seconds after which a display is refreshed where nothing happens."""

ASK_AGAIN = 6.0
"""Seconds after which a trial is asked again to stop: Python drops what a signal raises where nobody can catch it."""

TRIES = 3
"""How often a trial is started that is interrupted without anybody having asked for it."""


@dataclass(frozen=True)
class Conducted:
    """How a sweep went: its trials, and why it ended before all of them had, if it did."""

    rows: tuple[TrialProgress, ...]
    memory: dict[str, int]
    interrupted: bool
    out_of_time: bool


def conduct(
    source: Source,
    folder: Path,
    jobs: int | None = None,
    watcher: SweepWatcher | None = None,
    budget: float | None = None,
    executor: Executor | None = None,
) -> Conducted:
    """Run trials below a folder until there are no more, or until `budget` seconds have passed.

    They run on this machine, or where another `executor` runs them.

    On Ctrl-C trials save what is done, and the same call continues from there; a further Ctrl-C does not wait for that.
    """
    with interrupts.taken(signal.SIGINT), ExitStack() as stack:
        interrupts.hold()
        return _Conductor(source, folder, jobs, watcher, budget, executor, stack).conducted()


class _Conductor:
    def __init__(
        self,
        source: Source,
        folder: Path,
        jobs: int | None,
        watcher: SweepWatcher | None,
        budget: float | None,
        executor: Executor | None,
        stack: ExitStack,
    ) -> None:
        self._source, self._folder, self._watcher, self._stack = source, folder, watcher, stack
        self._asked, self._given_executor = jobs, executor
        self._until = None if budget is None else time.monotonic() + budget
        self._board = Board()
        self._waiting: list[int] = []
        self._running: set[int] = set()
        self._given_up: set[int] = set()
        self._tries: Counter[int] = Counter()
        self._apart: set[int] = set()
        self._asked_to_stop: dict[int, float] = {}
        self._memory: dict[str, int] = {}
        self._stopping = False
        self._jobs = Jobs(1, 1)

    @cached_property
    def _executor(self) -> Executor:
        """Where trials run; nothing is started where all are finished."""
        executor = self._given_executor or LocalExecutor()
        self._stack.callback(executor.close)
        return executor

    def conducted(self) -> Conducted:
        interrupted = out_of_time = False
        try:
            self._take_more()
            while (self._waiting or self._running) and not out_of_time:
                self._start_some()
                self._hear()
                out_of_time = self._until is not None and time.monotonic() >= self._until
        except KeyboardInterrupt:
            interrupts.caught()
            interrupted = True
        left = bool(self._waiting or self._running)
        self._stop_all()
        return Conducted(tuple(self._board.rows), self._memory, interrupted, out_of_time and left)

    def _take_more(self) -> None:
        """Put new trials on the board, and in line if they have not ended yet."""
        others: dict[str, str] = {}
        while trials := self._source.more():
            for trial in trials:
                with interrupts.allowed():
                    found, reason = _look(self._folder / trial.name, trial)
                ended: State | None = next((state for state in ENDED if state == found.kind), None)
                if ended is None and not self._source.needed(trial):
                    ended, reason = "given up", self._source.why_given_up
                row = TrialProgress(
                    trial, ended or "waiting", found.round, 0, found.accuracy, found.loss, reason=reason
                )
                number = self._board.add(replace(row, kept=ended is not None))
                if found.kind == "other":
                    others[trial.name] = found.why
                if ended is None:
                    self._waiting.append(number)
                else:
                    self._source.ended(self._board.rows[number])
        if others:
            name, why = next(iter(others.items()))
            warnings.warn(
                f"{counted(len(others), 'trial')} of {self._folder} {'is' if len(others) == 1 else 'are'} run again, since "
                f"what decides the result has changed ({name}: {why}); what was there is kept in {self._folder / ASIDE}",
                RuntimeWarning,
                stacklevel=2,
            )
        specs = [self._board.rows[number].trial.spec for number in (*self._running, *self._waiting)]
        self._jobs = max(self._jobs, jobs_for(specs, self._asked), key=lambda jobs: (jobs.number, jobs.workers))
        self._board.jobs = self._jobs.number
        self._show()

    def _start_some(self) -> None:
        while self._waiting and len(self._running) < self._jobs.number:
            number = self._waiting.pop(0)
            trial = self._board.rows[number].trial
            if not self._source.needed(trial):
                self._give_up(number)
                continue
            try:
                order = self._order(number, trial)
            except FedquiltError as error:  # values that no file can hold
                self._end(number, "failed", str(error))
                continue
            self._tries[number] += 1
            self._board.started(number)
            self._running.add(number)
            self._executor.start(order)

    def _order(self, number: int, trial: Trial) -> Order:
        spec = self._jobs.fitted(trial.spec, number in self._apart)
        home = None if spec.folder is None else str(spec.folder)
        folder = (self._folder / trial.name).absolute()
        source = spec.source.removesuffix(f" ({trial.name})")  # the trial is named where its errors are shown
        return Order(number, trial.name, spec.to_toml(), source, home, str(folder), importing_refused())

    def _hear(self) -> None:
        for event in self._executor.wait(TICK):
            if event.number not in self._running:
                continue
            if isinstance(event, Ended):
                self._hear_end(event)
            else:
                self._hear_progress(event)
        for number, asked in self._asked_to_stop.items():
            if number in self._running and time.monotonic() - asked > ASK_AGAIN:
                self._stop(number)
        self._show()

    def _hear_progress(self, event: Begun | Advanced) -> None:
        self._board.heard(event)
        if isinstance(event, Begun) or event.number in self._given_up or self._stopping:
            return
        if self._source.advanced(self._board.rows[event.number], event):
            self._given_up.add(event.number)
            self._stop(event.number)

    def _hear_end(self, event: Ended) -> None:
        row, number = self._board.rows[event.number], event.number
        self._running.discard(number)
        self._board.stopped(number)
        if event.memory is not None:
            self._memory[row.name] = event.memory
        folder = RunFolder(self._folder / row.name)
        if event.how is None and number not in self._apart and not self._stopping:
            self._apart.add(number)
            self._again(number)
        elif event.how is None and self._stopping:
            self._end(number, "interrupted", None)
        elif event.how is None:
            reason = _gone(event.code)
            folder.fail(reason)
            self._end(number, "failed", reason)
        elif event.how == "interrupted" and number in self._given_up:
            self._give_up(number)
        elif event.how == "interrupted" and not self._stopping and self._tries[number] < TRIES:
            self._again(number)
        else:
            why = folder.failure() if event.how == "failed" else None
            self._end(number, event.how, quiet_summary(folder.path)["diverged"] if event.how == "diverged" else why)

    def _again(self, number: int) -> None:
        """Put a trial first in line."""
        self._board.change(number, state="waiting")
        self._waiting.insert(0, number)

    def _end(self, number: int, state: State, reason: str | None) -> None:
        self._board.change(number, state=state, reason=reason)
        if state != "interrupted":
            self._source.ended(self._board.rows[number])
            if not self._stopping:
                self._take_more()

    def _give_up(self, number: int) -> None:
        """End a trial that need not be run, or not any further, and note that in its folder if it has one."""
        folder, why = RunFolder(self._folder / self._board.rows[number].name), self._source.why_given_up
        if folder.spec.exists():
            folder.give_up(why)
            with contextlib.suppress(OSError), (folder.path / LOG).open("a", encoding="utf-8") as log:
                log.write(f"given up: {why}\n")
        self._end(number, "given up", why)

    def _stop(self, number: int) -> None:
        """Ask a trial to save what is done and to end."""
        self._asked_to_stop[number] = time.monotonic()
        self._executor.stop(number)

    def _stop_all(self) -> None:
        """Let trials save what is done, and wait for them."""
        self._stopping = True
        self._waiting.clear()
        for number in self._running:
            self._stop(number)
        while self._running:
            try:
                self._hear()
            except KeyboardInterrupt:
                interrupts.caught()
                for number in self._running:
                    self._executor.stop(number, at_once=True)

    def _show(self) -> None:
        if self._watcher is not None:
            self._watcher.show(self._board)


def _look(folder: Path, trial: Trial) -> tuple[TrialStanding, str | None]:
    """Look into a trial's folder; one that cannot be read is left to the trial itself, which fails with the reason."""
    try:
        found = standing(folder, trial.spec, thorough=False)
    except FedquiltError:
        return TrialStanding("unknown"), None
    return found, quiet_summary(folder)["diverged"] if found.kind == "diverged" else None


def _gone(code: int | None) -> str:
    """Say how a process ended that did not say so itself.

    >>> _gone(-9), _gone(1)
    ('its process was killed (SIGKILL): the machine may have run out of memory', 'its process ended with exit code 1')
    """
    if code is None or code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name
    memory = ": the machine may have run out of memory" if name == "SIGKILL" else ""
    return f"its process was killed ({name}){memory}"
