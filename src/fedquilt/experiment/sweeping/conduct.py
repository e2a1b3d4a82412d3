"""Conducts a sweep: starts trials as others end, notes what they tell, and ends cleanly on Ctrl-C."""

from __future__ import annotations

import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from fedquilt.base import interrupts
from fedquilt.base.errors import FedquiltError
from fedquilt.base.text import counted
from fedquilt.experiment.contents import ASIDE
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.imports import importing_refused
from fedquilt.experiment.summary import quiet_summary
from fedquilt.experiment.sweeping.board import Board, TrialProgress
from fedquilt.experiment.sweeping.display import SweepWatcher
from fedquilt.experiment.sweeping.jobs import Jobs, jobs_for
from fedquilt.experiment.sweeping.local import ThisMachine
from fedquilt.experiment.sweeping.places import ENDED, Advanced, Begun, Ended, Order, Place, State
from fedquilt.experiment.sweeping.sources import Source
from fedquilt.experiment.sweeping.standing import Standing, reason_in, standing

TICK = 0.5
"""Seconds after which a display is refreshed where nothing happens."""

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
    place: Callable[[], Place] = ThisMachine,
) -> Conducted:
    """Run trials below a folder until there are no more, or until `budget` seconds have passed.

    On Ctrl-C trials save what is done, and the same call goes on from there; a further Ctrl-C does not wait for that.
    """
    with interrupts.taken(signal.SIGINT), RunFolder(folder).locked(), ExitStack() as stack:
        interrupts.hold()
        return _Conductor(source, folder, jobs, watcher, budget, place, stack).conducted()


class _Conductor:
    def __init__(
        self,
        source: Source,
        folder: Path,
        jobs: int | None,
        watcher: SweepWatcher | None,
        budget: float | None,
        place: Callable[[], Place],
        stack: ExitStack,
    ) -> None:
        self._source, self._folder, self._watcher, self._stack = source, folder, watcher, stack
        self._asked, self._make_place = jobs, place
        self._until = None if budget is None else time.monotonic() + budget
        self._board = Board()
        self._waiting: list[int] = []
        self._running: set[int] = set()
        self._given_up: set[int] = set()
        self._tries: Counter[int] = Counter()
        self._memory: dict[str, int] = {}
        self._place: Place | None = None
        self._jobs = Jobs(1, 1)

    def conducted(self) -> Conducted:
        interrupted = out_of_time = False
        try:
            self._take(self._source.more())
            while self._waiting or self._running:
                out_of_time = self._until is not None and time.monotonic() >= self._until
                if out_of_time:
                    break
                self._start_some()
                self._hear()
        except KeyboardInterrupt:
            interrupts.hold()
            interrupted = True
        self._stop_all()
        return Conducted(tuple(self._board.rows), self._memory, interrupted, out_of_time)

    def _take(self, trials: Sequence[Trial]) -> None:
        """Put trials on the board, and in line if they have not ended yet."""
        others: dict[str, str] = {}
        for trial in trials:
            with interrupts.allowed():
                found, reason = _look(self._folder / trial.name, trial)
            ended: State | None = next((state for state in ENDED if state == found.kind), None)
            row = TrialProgress(trial, ended or "waiting", found.round, 0, found.accuracy, found.loss, reason=reason)
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
        if self._place is None and self._waiting:
            specs = [self._board.rows[number].trial.spec for number in self._waiting]
            self._jobs = jobs_for(specs, self._asked)
            self._board.jobs = self._jobs.number
            self._place = self._make_place()
            self._stack.callback(self._place.close)
        self._show()

    def _start_some(self) -> None:
        assert self._place is not None
        while self._waiting and len(self._running) < self._jobs.number:
            number = self._waiting.pop(0)
            trial = self._board.rows[number].trial
            spec = self._jobs.fitted(trial.spec)
            folder = self._folder / trial.name
            home = None if spec.folder is None else str(spec.folder)
            refused = importing_refused()
            try:
                order = Order(number, trial.name, spec.to_toml(), spec.source, home, str(folder.absolute()), refused)
            except FedquiltError as error:  # values that no file can hold
                self._end(number, "failed", str(error))
                continue
            self._tries[number] += 1
            self._board.started(number)
            self._running.add(number)
            self._place.start(order)

    def _hear(self) -> None:
        assert self._place is not None
        for event in self._place.wait(TICK):
            if isinstance(event, Ended):
                self._hear_end(event)
            elif event.number in self._running:
                self._hear_progress(event)
        self._show()

    def _hear_progress(self, event: Begun | Advanced) -> None:
        self._board.heard(event)
        row = self._board.rows[event.number]
        if isinstance(event, Advanced) and self._source.advanced(row, event):
            self._given_up.add(event.number)
            assert self._place is not None
            self._place.stop(event.number)

    def _hear_end(self, event: Ended) -> None:
        if event.number not in self._running:
            return
        row = self._board.rows[event.number]
        if event.memory is not None:
            self._memory[row.name] = event.memory
        self._running.discard(event.number)
        folder = self._folder / row.name
        if event.how is None:
            reason = f"its process was killed by {_named(event.code)}"
            RunFolder(folder).fail(reason)
            self._end(event.number, "failed", reason)
        elif event.number in self._given_up and event.how == "interrupted":
            self._end(event.number, "pruned", "others were better after as many rounds")
        elif event.how == "interrupted" and self._tries[event.number] < TRIES and not self._stopping:
            self._board.change(event.number, state="waiting")
            self._waiting.insert(0, event.number)
        else:
            reason = reason_in(folder) if event.how == "failed" else None
            reason = quiet_summary(folder)["diverged"] if event.how == "diverged" else reason
            self._end(event.number, event.how, reason)

    def _end(self, number: int, state: State, reason: str | None) -> None:
        self._board.change(number, state=state, reason=reason)
        if state != "interrupted":
            self._source.ended(self._board.rows[number])
            self._take(self._source.more())

    _stopping = False

    def _stop_all(self) -> None:
        """Let trials save what is done, and wait for them."""
        self._stopping = True
        self._waiting.clear()
        for number in self._running:
            assert self._place is not None
            self._place.stop(number)
        while self._running:
            try:
                self._hear()
            except KeyboardInterrupt:
                interrupts.hold()
                for number in self._running:
                    assert self._place is not None
                    self._place.stop(number, at_once=True)

    def _show(self) -> None:
        if self._watcher is not None:
            self._watcher.show(self._board)


def _look(folder: Path, trial: Trial) -> tuple[Standing, str | None]:
    """Look into a trial's folder; one that cannot be read is left to the trial itself, which fails with the reason."""
    try:
        found = standing(folder, trial.spec, thorough=False)
    except FedquiltError:
        return Standing("unknown"), None
    return found, quiet_summary(folder)["diverged"] if found.kind == "diverged" else None


def _named(code: int | None) -> str:
    """Name the signal that ended a process.

    >>> _named(-9), _named(1)
    ('SIGKILL: the machine may have run out of memory', 'itself (exit code 1)')
    """
    if code is None or code >= 0:
        return f"itself (exit code {code})"
    name = signal.Signals(-code).name
    return f"{name}: the machine may have run out of memory" if name == "SIGKILL" else name
