"""Watchers: who is told how a run goes. Displays and trackers are watchers, and so is whatever a user writes.

    stage    something that takes a while begins: loading, compiling
    start    the run is about to train; what it is called, where its folder is, its settings
    begin    training starts, or goes on after some rounds
    heard    so many of a round's clients have answered
    round    a round has ended
    end      the run has ended, or failed

A watcher has those of these methods that it needs; the others may be missing. To write one, subclass `Watcher`, whose
methods do nothing, or write a class of your own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.base.errors import reason_of

if TYPE_CHECKING:
    from fedquilt.analysis.curves import History
    from fedquilt.experiment.result import Result

Record = dict[str, Any]


@dataclass(frozen=True)
class AboutRun:
    """What a watcher is told of a run: its name, its folder if it has one, and its settings, by table and key."""

    name: str
    folder: Path | None
    settings: Mapping[str, Any]


class Watcher:
    """Is told how a run goes. Every method may be left out.

    >>> class Printer(Watcher):
    ...     def round(self, record):
    ...         print(record["round"], record["clients"])
    >>> Printer().round({"round": 1, "clients": [3, 5]})
    1 [3, 5]
    """

    def stage(self, text: str) -> None:
        """Something that takes a while begins."""

    def start(self, about: AboutRun) -> None:
        """The run is about to train: not told of one that had ended before. Worker processes have been started."""

    def begin(self, history: History, last: int) -> None:
        """Training starts, or goes on after the rounds of `history`; round `last` is the last one."""

    def heard(self, clients: int, total: int) -> None:
        """That many of a round's clients have answered."""

    def round(self, record: Record) -> None:
        """A round has ended; `record` is its line in metrics.jsonl."""

    def end(self, result: Result | None) -> None:
        """The run has ended; without a result, it failed."""


METHODS = ("stage", "start", "begin", "heard", "round", "end")


def tell(watcher: object, method: str, *about: Any) -> None:
    """Tell a watcher something, if it has a method to be told by."""
    listens = getattr(watcher, method, None)
    if listens is not None:
        listens(*about)


@dataclass(frozen=True)
class Watchers(Watcher):
    """Several watchers as one: all are told, in their order."""

    each: tuple[object, ...]

    def stage(self, text: str) -> None:
        """Tell all."""
        self._tell("stage", text)

    def start(self, about: AboutRun) -> None:
        """Tell all."""
        self._tell("start", about)

    def begin(self, history: History, last: int) -> None:
        """Tell all."""
        self._tell("begin", history, last)

    def heard(self, clients: int, total: int) -> None:
        """Tell all."""
        self._tell("heard", clients, total)

    def round(self, record: Record) -> None:
        """Tell all."""
        self._tell("round", record)

    def end(self, result: Result | None) -> None:
        """Tell all."""
        self._tell("end", result)

    def _tell(self, method: str, *about: Any) -> None:
        for watcher in self.each:
            tell(watcher, method, *about)


def together(watchers: Iterable[object | None]) -> Watchers | None:
    """Return some watchers as one; those that are None are left out, and of nobody nothing is left."""
    there = tuple(watcher for watcher in watchers if watcher is not None)
    return Watchers(there) if there else None


@dataclass(eq=False)
class Harmless:
    """A watcher that cannot end the run: if it fails, that is said once, and it is told nothing more."""

    name: str
    watcher: object
    failed: bool = field(default=False, init=False)

    def __getattr__(self, method: str) -> Any:
        """Return a method of the watcher that raises nothing."""
        if method not in METHODS:
            raise AttributeError(method)

        def told(*about: Any) -> None:
            if self.failed:
                return
            try:
                tell(self.watcher, method, *about)
            except Exception as error:
                self.failed = True
                warnings.warn(
                    f"{self.name} failed and is told nothing more of this run, which goes on: {reason_of(error)}",
                    RuntimeWarning,
                    stacklevel=2,
                )

        return told
