"""Shows how training goes: a live display on a terminal, plain lines elsewhere.

The display is refreshed from the training loop itself and starts no thread, so that a worker may be forked at any time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedquilt.metrics.curves import History

REFRESH = 0.1
LINE_EVERY = 2.0


def watcher(console: Console, title: str) -> Live | Lines:
    """Return what fits the console."""
    return Live(console, title) if console.is_terminal else Lines(console, title)


class Pace:
    """Counts rounds and time, for a rate and the time that is left."""

    def __init__(self, done: int, last: int) -> None:
        """Start counting after `done` rounds."""
        self.done, self.last, self.start, self.begun = done, last, done, time.monotonic()

    def text(self) -> str:
        """Say how fast it goes and how long it will take.

        >>> Pace(0, 10).text()
        ''
        """
        ran, seconds = self.done - self.start, time.monotonic() - self.begun
        if not ran or seconds <= 0:
            return ""
        rate = ran / seconds
        speed = f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s/round"
        return f"{speed}, {clock((self.last - self.done) / rate)} left"


def clock(seconds: float) -> str:
    """Write a duration.

    >>> clock(75), clock(4000)
    ('1:15', '1:06:40')
    """
    whole = int(seconds + 0.5)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def counted(number: int, noun: str) -> str:
    """Write a number of things.

    >>> counted(1, "round"), counted(2000, "round")
    ('1 round', '2,000 rounds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def amount(size: int) -> str:
    """Write a number of bytes.

    >>> amount(0), amount(26_000), amount(1_234_567_890)
    ('0.0 kB', '26.0 kB', '1,234.6 MB')
    """
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:,.1f} MB"


def percent(value: float | None) -> str:
    """Write an accuracy.

    >>> percent(0.9312), percent(None)
    ('93.12%', '–')
    """
    return "–" if value is None else f"{100 * value:.2f}%"


SHARES = ("accuracy", "error", "top5")
"""Metrics that are written in percent."""


def figure(name: str, value: float | None) -> str:
    """Write a metric or a loss.

    >>> figure("top5", 0.9312), figure("perplexity", 12.34567), figure("loss", 0.5)
    ('93.12%', '12.3457', '0.5000')
    """
    if name in SHARES or value is None:
        return percent(value)
    return f"{value:.4f}" if 1e-4 <= abs(value) < 1e6 or not value else f"{value:.4g}"


def scores(about: Mapping[str, Any], loss: bool = False) -> list[str]:
    """Write accuracy and the other metrics; the loss too, if asked, or where a run does not measure accuracy.

    >>> scores({"accuracy": 0.9, "loss": 0.25}), scores({"accuracy": None, "loss": 0.25, "metrics": {"rmse": 0.5}})
    (['accuracy 90.00%'], ['loss 0.2500', 'rmse 0.5000'])
    >>> scores({"accuracy": None, "loss": None}, loss=True)
    ['accuracy –']
    """
    metrics = about.get("metrics") or {}
    without = about["accuracy"] is None and (about["loss"] is not None or metrics)
    shown = {} if without else {"accuracy": about["accuracy"]}
    shown |= {"loss": about["loss"]} if without or (loss and about["loss"] is not None) else {}
    return [f"{name} {figure(name, value)}" for name, value in (shown | metrics).items()]


class Live:
    """Two bars: the run's rounds and the round's clients."""

    def __init__(self, console: Console, title: str) -> None:
        """Prepare the display; it appears when training begins."""
        self._console, self._title = console, title
        self._progress: Progress | None = None
        self._shown = 0.0

    def begin(self, history: History, last: int) -> None:
        """Show the bars."""
        self._pace = Pace(history.last, last)
        self._newest = history.newest or {"accuracy": None, "loss": None}
        self._best = history.best[1] if history.best and history.whole else None
        self._dropped = sum(len(record["dropped"]) for record in history)
        bar = (BarColumn(bar_width=20),) if self._console.width >= 100 else ()
        columns = (TextColumn("{task.description}"), *bar, TextColumn("{task.fields[text]}"))
        self._progress = Progress(*columns, console=self._console, auto_refresh=False)
        self._rounds: TaskID = self._progress.add_task(escape(self._title), total=last, completed=history.last, text="")
        self._clients: TaskID = self._progress.add_task("  clients", total=1, text="")
        self._progress.start()
        self._refresh(force=True)

    def heard(self, clients: int, total: int) -> None:
        """Move the round's bar."""
        assert self._progress is not None
        self._progress.update(self._clients, completed=clients, total=total, text=f"{clients}/{total}")
        self._refresh()

    def round(self, record: dict[str, Any]) -> None:
        """Move the run's bar."""
        self._pace.done = record["round"]
        self._newest = History([record]).newest or self._newest
        if record["accuracy"] is not None:
            self._best = max(self._best or 0.0, record["accuracy"])
        self._dropped += len(record["dropped"])
        self._refresh(force=record["round"] == self._pace.last)

    def close(self) -> None:
        """Leave the last state of the bars on the screen."""
        if self._progress is not None:
            self._refresh(force=True)
            self._progress.update(self._clients, visible=False)
            self._progress.stop()
            self._progress = None

    def _refresh(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._progress is None or (not force and now - self._shown < REFRESH):
            return
        self._shown = now
        words = [f"round {self._pace.done}/{self._pace.last}", *scores(self._newest)]
        if self._newest["accuracy"] is not None or self._newest["loss"] is None:
            words.insert(2, f"best {percent(self._best)}")
        if self._dropped:
            words.append(f"[yellow]{self._dropped} left out[/yellow]")
        words.append(self._pace.text())
        self._progress.update(self._rounds, completed=self._pace.done, text="  ".join(words))
        self._progress.refresh()


class Lines:
    """A line a round, or one every few seconds when rounds are short."""

    def __init__(self, console: Console, title: str) -> None:
        """Prepare."""
        self._console, self._title = console, title
        self._written = 0.0

    def begin(self, history: History, last: int) -> None:
        """Say that training begins or goes on."""
        self._pace = Pace(history.last, last)
        how = f"goes on after round {history.last}" if history.last else "begins"
        self._print(f"{self._title}: {how}, {counted(last, 'round')} in all")

    def heard(self, clients: int, total: int) -> None:
        """Say nothing of single clients."""

    def round(self, record: dict[str, Any]) -> None:
        """Write a line, unless one was written just now."""
        self._pace.done = record["round"]
        now = time.monotonic()
        if record["round"] != self._pace.last and now - self._written < LINE_EVERY:
            return
        self._written = now
        words = [f"round {record['round']}/{self._pace.last}", *scores(record, loss=True)]
        if record["dropped"]:
            words.append(f"{len(record['dropped'])} left out")
        self._print("  ".join([*words, self._pace.text()]))

    def close(self) -> None:
        """Nothing to clean up."""

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
