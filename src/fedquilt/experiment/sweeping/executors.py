"""Executors, which run trials: they take orders, report how they go, and stop them.

An executor knows nothing of experiments. It is given numbered orders, each with all that a trial needs, and what it reports
is small: whatever is long, such as the reason of a failure, is in the trial's folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

State = Literal["waiting", "running", "finished", "diverged", "failed", "interrupted", "given up"]
"""Of a trial. Failed and interrupted ones are run again by the next sweep; those that have ended otherwise are not."""

ENDED: tuple[State, ...] = ("finished", "diverged", "given up")


@dataclass(frozen=True)
class Order:
    """A trial to run: its resolved spec as TOML, what that is called in messages, and where its run folder is.

    `home` is the folder in which the spec's own functions and files are looked for; `no_import` refuses the functions.
    """

    number: int
    name: str
    spec: str
    source: str
    home: str | None
    folder: str
    no_import: bool

    def encoded(self) -> bytes:
        """Write the order as a line.

        >>> order = Order(1, "lr=0.1", "[run]", "rates.toml", None, "runs/rates/lr=0.1", False)
        >>> decoded(order.encoded()) == order
        True
        """
        return json.dumps(asdict(self)).encode() + b"\n"


def decoded(line: bytes) -> Order:
    """Read an order that was written as a line."""
    return Order(**json.loads(line))


@dataclass(frozen=True)
class Begun:
    """A trial's training begins, or goes on, after `round` of `last` rounds; `best` is its best accuracy so far."""

    number: int
    round: int
    last: int
    best: float | None = None
    lowest: float | None = None


@dataclass(frozen=True)
class Advanced:
    """A trial has ended a round; what was not measured then is None."""

    number: int
    round: int
    accuracy: float | None
    loss: float | None
    validation: float | None = None


@dataclass(frozen=True)
class Ended:
    """A trial has ended, in whichever way; `memory` is what its processes took at most, in bytes, if it is known.

    `how` is None where its process is gone without a word, with the exit code `code`.
    """

    number: int
    how: State | None
    memory: int | None = None
    code: int | None = None


TrialEvent = Begun | Advanced | Ended

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Begun, Advanced, Ended)}


def written(event: TrialEvent) -> bytes:
    """Write an event as a line: short enough that a pipe takes it whole, whoever else writes into it.

    >>> read_event(written(Advanced(3, 1, 0.5, None)))
    Advanced(number=3, round=1, accuracy=0.5, loss=None, validation=None)
    """
    return json.dumps([type(event).__name__, *asdict(event).values()]).encode() + b"\n"


def read_event(line: bytes) -> TrialEvent:
    """Read an event that was written as a line."""
    kind, *values = json.loads(line)
    return _KINDS[kind](*values)  # type: ignore[no-any-return]


class Executor(Protocol):
    """Where trials run: this machine, or another."""

    def start(self, order: Order) -> None:
        """Start a trial."""

    def wait(self, seconds: float) -> Sequence[TrialEvent]:
        """Wait for trials to report something, and return it; nothing, if so many seconds pass before."""

    def stop(self, number: int, at_once: bool = False) -> None:
        """Ask a trial to save what is done and to end; or end it `at_once`, where its newest checkpoint is."""

    def close(self) -> None:
        """End whatever still runs."""
