"""What is known of a sweep while it runs: how far each trial is, which settings are best so far, and how long it takes."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedquilt.base.text import figure
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.sweeping.executors import ENDED, Advanced, Begun, State


@dataclass(frozen=True)
class TrialProgress:
    """How far a trial is: `accuracy` is its best so far and `loss` its lowest, `seconds` what it has taken here.

    `kept` says that it was finished before this sweep began, `reason` why it failed, diverged or stopped.
    """

    trial: Trial
    state: State = "waiting"
    round: int = 0
    last: int = 0
    accuracy: float | None = None
    loss: float | None = None
    seconds: float = 0.0
    kept: bool = False
    reason: str | None = None

    @property
    def name(self) -> str:
        """The name of the trial."""
        return self.trial.name

    @property
    def score(self) -> str:
        """The best accuracy so far, or the lowest loss where that is not measured."""
        if self.accuracy is None and self.loss is not None:
            return figure("loss", self.loss)
        return figure("accuracy", self.accuracy)


@dataclass
class Board:
    """All trials of a sweep, by number; when they were started, and which rounds took how long."""

    jobs: int = 1
    rows: list[TrialProgress] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    _started: dict[int, float] = field(default_factory=dict)
    _from: dict[int, tuple[int, float]] = field(default_factory=dict)
    _paces: dict[int, float] = field(default_factory=dict)

    def add(self, row: TrialProgress) -> int:
        """Add a trial, and return its number."""
        self.rows.append(row)
        return len(self.rows) - 1

    def started(self, number: int) -> None:
        """Note that a trial is started."""
        self._started[number] = time.monotonic()
        self.change(number, state="running")

    def heard(self, event: Begun | Advanced) -> None:
        """Note what a trial has reported."""
        row, number, now = self.rows[event.number], event.number, time.monotonic()
        if isinstance(event, Begun):
            self._from[number] = event.round, now
            scores = {"accuracy": event.best, "loss": event.lowest, "last": event.last}
        else:
            first, when = self._from[number]
            self._paces[number] = (now - when) / (event.round - first)
            scores = {
                "accuracy": _better(max, row.accuracy, event.accuracy),
                "loss": _better(min, row.loss, event.loss),
            }
        self.change(number, round=event.round, seconds=now - self._started[number], **scores)

    def stopped(self, number: int) -> None:
        """Note that a trial's process is gone."""
        self.change(number, seconds=time.monotonic() - self._started[number])

    def change(self, number: int, **changes: Any) -> None:
        """Note something else of a trial."""
        self.rows[number] = replace(self.rows[number], **changes)

    @property
    def counts(self) -> dict[str, int]:
        """How many trials are in which state, in the order in which that is of interest."""
        found = Counter(row.state for row in self.rows)
        order: Sequence[State] = (*ENDED, "failed", "interrupted", "running", "waiting")
        return {state: found[state] for state in order if found[state] or state in ("finished", "running", "waiting")}

    @property
    def best(self) -> tuple[str, str] | None:
        """The best settings so far, and their score: the mean over the repetitions that have ended. A repeat never wins."""
        groups: dict[str, list[TrialProgress]] = defaultdict(list)
        for row in self.rows:
            if row.state == "finished":
                groups[settings(row.trial)].append(row)
        scored = {name: _mean([row.accuracy for row in rows]) for name, rows in groups.items()}
        known = {name: value for name, value in scored.items() if value is not None}
        if known:
            name = max(known, key=lambda each: known[each])
            return name, figure("accuracy", known[name])
        losses = {name: _mean([row.loss for row in rows]) for name, rows in groups.items()}
        lowest = {name: value for name, value in losses.items() if value is not None}
        if not lowest:
            return None
        name = min(lowest, key=lambda each: lowest[each])
        return name, f"loss {figure('loss', lowest[name])}"

    def left(self) -> float | None:
        """Estimate the seconds until all trials have ended; None before a round has."""
        paces = self._paces
        if not paces:
            return None
        by_cell: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for number, pace in paces.items():
            by_cell[self.rows[number].trial.cell].append(pace)
        overall = sum(paces.values()) / len(paces)
        total = longest = 0.0
        for number, row in enumerate(self.rows):
            if row.state not in ("running", "waiting"):
                continue
            same = by_cell.get(row.trial.cell)
            pace = paces.get(number) or (sum(same) / len(same) if same else overall)
            left = pace * max((row.last or row.trial.spec.options.rounds) - row.round, 0)
            total, longest = total + left, max(longest, left)
        return max(total / self.jobs, longest)


def settings(trial: Trial) -> str:
    """Name what a trial tries: its name without what is repeated.

    >>> from fedquilt.experiment.options import Options
    >>> from fedquilt.experiment.spec import Spec
    >>> spec = Spec("rates.toml", Options(rounds=2), {}, {})
    >>> settings(Trial("FedAvg,lr=0.1,seed=2", ("FedAvg",), {"method.lr": 0.1}, {"run.seed": 2}, None, spec, {}))
    'FedAvg, lr=0.1'
    """
    tuned = [f"{key.rpartition('.')[2]}={value}" for key, value in trial.tuned.items()]
    return ", ".join([*trial.cell, *tuned]) or trial.name


def _better(choose: Any, before: float | None, now: float | None) -> float | None:
    return choose(before, now) if before is not None and now is not None else before if now is None else now


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
