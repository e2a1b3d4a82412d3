"""Watchers, which are notified of how a run goes. Displays and trackers are watchers, and so is whatever a user writes.

    stage    something that takes a while begins: loading, compiling
    start    the run is about to train; what it is called, where its folder is, its settings
    begin    training starts, or continues after some rounds
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
    from fedquilt.round.measures import Record


@dataclass(frozen=True)
class AboutRun:
    """What a watcher is given of a run: its name, its folder if it has one, and its settings, by table and key."""

    name: str
    folder: Path | None
    settings: Mapping[str, Any]


class Watcher:
    """Is notified of how a run goes. Every method may be left out.

    >>> class Printer(Watcher):
    ...     def round(self, record):
    ...         print(record["round"], record["clients"])
    >>> Printer().round({"round": 1, "clients": [3, 5]})
    1 [3, 5]
    """

    def stage(self, text: str) -> None:
        """Something that takes a while begins."""

    def start(self, about: AboutRun) -> None:
        """The run is about to train: not called for one that had ended before. Worker processes have been started."""

    def begin(self, history: History, last: int) -> None:
        """Training starts, or continues after the rounds of `history`; round `last` is the last one."""

    def heard(self, clients: int, total: int) -> None:
        """That many of a round's clients have answered."""

    def round(self, record: Record) -> None:
        """A round has ended; `record` is its line in metrics.jsonl."""

    def end(self, result: Result | None) -> None:
        """The run has ended; without a result, it failed."""


METHODS = ("stage", "start", "begin", "heard", "round", "end")


def notify(watcher: object, method: str, *about: Any) -> None:
    """Call a method of a watcher, if it has it."""
    listens = getattr(watcher, method, None)
    if listens is not None:
        listens(*about)


@dataclass(frozen=True)
class Watchers(Watcher):
    """Several watchers as one: all are notified, in their order."""

    each: tuple[object, ...]

    def stage(self, text: str) -> None:
        """Notify all."""
        self._notify("stage", text)

    def start(self, about: AboutRun) -> None:
        """Notify all."""
        self._notify("start", about)

    def begin(self, history: History, last: int) -> None:
        """Notify all."""
        self._notify("begin", history, last)

    def heard(self, clients: int, total: int) -> None:
        """Notify all."""
        self._notify("heard", clients, total)

    def round(self, record: Record) -> None:
        """Notify all."""
        self._notify("round", record)

    def end(self, result: Result | None) -> None:
        """Notify all."""
        self._notify("end", result)

    def _notify(self, method: str, *about: Any) -> None:
        for watcher in self.each:
            notify(watcher, method, *about)


def together(watchers: Iterable[object | None]) -> Watchers | None:
    """Return some watchers as one; those that are None are left out, and of nobody nothing is left."""
    there = tuple(watcher for watcher in watchers if watcher is not None)
    return Watchers(there) if there else None


@dataclass(eq=False)
class Harmless:
    """A watcher that cannot end the run: if it fails, that is said once, and it is called no more."""

    name: str
    watcher: object
    failed: bool = field(default=False, init=False)

    def __getattr__(self, method: str) -> Any:
        """Return a method of the watcher that raises nothing."""
        if method not in METHODS:
            raise AttributeError(method)

        def called(*about: Any) -> None:
            if self.failed:
                return
            try:
                notify(self.watcher, method, *about)
            except Exception as error:
                self.failed = True
                warnings.warn(
                    f"{self.name} failed, and is not called again in this run, which continues: {reason_of(error)}",
                    RuntimeWarning,
                    stacklevel=2,
                )

        return called
