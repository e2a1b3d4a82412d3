"""A run under way: its state, its records, and what they say of whether it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedquilt.algorithm.state import RunState
from fedquilt.analysis.curves import History
from fedquilt.analysis.standing import Standing, divergence
from fedquilt.experiment.notices import (
    warn_of_divergence,
    warn_of_left_out,
    warn_of_odd_metrics,
    warn_of_untested,
)
from fedquilt.experiment.options import Options
from fedquilt.experiment.result import Result, result_of
from fedquilt.round.federation import Federation
from fedquilt.round.measures import Record
from fedquilt.round.server import Server


@dataclass(eq=False)
class UnderWay:
    """What is known of a run between two rounds; `last` is the round that it ends with unless it ends early.

    `best` is the state after the best round, where that is kept.
    """

    federation: Federation | Server
    options: Options
    last: int
    run: RunState
    history: History
    best: RunState | None = None
    standing: Standing = field(init=False)

    def __post_init__(self) -> None:
        """Take the records so far in."""
        self.standing = Standing.of(self.history)

    def take(self, run: RunState, record: Record) -> None:
        """Take in a round that is done, and warn of what is odd in it."""
        self.run = run
        self.history.records.append(record)
        self.standing = self.standing.after(record)
        if self.options.keep == "best" and self.standing.best is not None and self.standing.best.round == run.round:
            self.best = run
        warn_of_left_out(self.history)
        warn_of_untested(self.history)
        warn_of_odd_metrics(self.history)
        warn_of_divergence(self.history, self.options, self.last)

    @property
    def stopped(self) -> str | None:
        """Why the run ends here, before its last round, as its options ask for it; None if it does not."""
        options = self.options
        if self.run.round >= self.last:
            return None
        return self.standing.ending(options.stop_at, options.patience, options.stop_after_seconds)

    @property
    def diverged(self) -> str | None:
        """Why the run has diverged, if it has."""
        return divergence(self.history, self.last)

    def over(self) -> bool:
        """Say whether there is nothing left to do."""
        gives_up = self.options.on_divergence == "stop" and self.diverged is not None
        return self.run.round >= self.last or gives_up or self.stopped is not None

    def result(self, interrupted: bool) -> Result:
        """Return what the run ends with, here and now."""
        about = (None, None) if interrupted else (self.diverged, self.stopped)
        return result_of(self.federation, self.history, self.run, interrupted, *about, self.standing.best, self.best)
