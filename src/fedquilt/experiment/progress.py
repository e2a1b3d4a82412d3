"""Shows how training goes: a live display on a terminal or in a notebook, plain lines elsewhere.

The display is refreshed from the training loop itself and starts no thread, so that a worker may be forked at any time.
"""

from __future__ import annotations

import html
import sys
import time
from typing import Any

import rich.live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedquilt.analysis.curves import History
from fedquilt.base.text import clock, counted, percent, scores
from fedquilt.experiment.watching import Watcher

REFRESH = 0.1
NOTEBOOK_REFRESH = 0.5
LINE_EVERY = 2.0


def watcher(console: Console, title: str) -> Live | Lines:
    """Return what fits the console."""
    return Live(console, title) if console.is_terminal else Lines(console, title)


def default_display(title: str, wanted: bool | None = None) -> Live | Lines | Notebook | None:
    """Return what fits where Python runs: nothing where nobody looks, unless a display is `wanted`.

    >>> default_display("fed_avg", wanted=False) is None
    True
    """
    if wanted is False:
        return None
    if in_notebook():
        return Notebook(title)
    console = Console(emoji=False)
    return watcher(console, title) if wanted or console.is_terminal else None


def in_notebook() -> bool:
    """Say whether this is a notebook: a shell of IPython's that talks to a page.

    >>> in_notebook()
    False
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ not in ("TerminalInteractiveShell", "NoneType")


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
        return ", ".join(text for text in (self.speed(), self.left()) if text)

    def speed(self) -> str:
        """Say how fast it goes, once a round is done."""
        rate = self._rate()
        return "" if not rate else f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s/round"

    def left(self) -> str:
        """Say how long it will take, once a round is done."""
        rate = self._rate()
        return f"{clock((self.last - self.done) / rate)} left" if rate else ""

    def _rate(self) -> float:
        seconds = time.monotonic() - self.begun
        return (self.done - self.start) / seconds if seconds > 0 else 0.0


class Gist:
    """What a display says of a run: how far it is, and how it goes."""

    def __init__(self, history: History, last: int) -> None:
        """Start after the rounds of a history."""
        self.pace = Pace(history.last, last)
        self.clients = ""
        self._newest = history.newest or {"accuracy": None, "loss": None}
        self._best = history.best[1] if history.best and history.whole else None
        self._dropped = sum(len(record["dropped"]) for record in history)

    def heard(self, clients: int, total: int) -> None:
        """Count the round's clients."""
        self.clients = f"clients {clients}/{total}"

    def round(self, record: dict[str, Any]) -> None:
        """Take a round in."""
        self.pace.done = record["round"]
        self._newest = History([record]).newest or self._newest
        if record["accuracy"] is not None:
            self._best = max(self._best or 0.0, record["accuracy"])
        self._dropped += len(record["dropped"])

    def far(self) -> str:
        """Say how far the run is, and how long it will take."""
        return "  ".join(text for text in (f"round {self.pace.done}/{self.pace.last}", self.pace.left()) if text)

    def words(self) -> list[str]:
        """Say how it goes, what matters most first: the end is cut where a terminal is too narrow."""
        words = scores(self._newest)
        if self._newest["accuracy"] is not None or self._newest["loss"] is None:
            words.insert(1, f"best {percent(self._best)}")
        if self._dropped:
            words.append(f"{self._dropped} left out")
        return [word for word in (*words, self.pace.speed(), self.clients) if word]


BAR = 20
"""Characters of the bar; half of it on a narrow terminal."""

WIDE = 100
"""Columns of a terminal that is not narrow."""


class Live(Watcher):
    """Two lines: how far the run is, with a bar and the time that is left; and how it goes.

    A title that leaves no room for the others, such as that of a sweep's point with many keys, has a line of its own.
    """

    def __init__(self, console: Console, title: str) -> None:
        """Prepare the display; it appears when training begins."""
        self._console, self._title = console, title
        self._live: rich.live.Live | None = None
        self._shown = 0.0

    def stage(self, text: str) -> None:
        """Say what happens before training begins."""
        self._console.print(f"{self._title}: {text} …", highlight=False, markup=False, soft_wrap=True)

    def begin(self, history: History, last: int) -> None:
        """Show the lines."""
        self._gist = Gist(history, last)
        self._bar = ProgressBar(last, history.last, BAR if self._console.width >= WIDE else BAR // 2)
        taken = (self._bar.width or 0) + len(f"round {last}/{last}") + len("100:00:00 left") + 6
        self._beside = len(self._title) + taken <= self._console.width
        self._live = rich.live.Live(console=self._console, auto_refresh=False)
        self._live.start()
        self._refresh(force=True)

    def heard(self, clients: int, total: int) -> None:
        """Count the round's clients."""
        self._gist.heard(clients, total)
        self._refresh()

    def round(self, record: dict[str, Any]) -> None:
        """Move the run's bar."""
        self._gist.round(record)
        self._refresh(force=record["round"] == self._gist.pace.last)

    def close(self) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._gist.clients = ""
            self._refresh(force=True)
            self._live.stop()
            self._live = None

    def _refresh(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._live is None or (not force and now - self._shown < REFRESH):
            return
        self._shown = now
        self._bar.update(self._gist.pace.done)
        first = Table.grid(padding=(0, 2, 0, 0))
        first.add_row(*([_line(self._title)] if self._beside else []), self._bar, _line(self._gist.far()))
        lines: list[RenderableType] = [first, _line("  " + "  ".join(self._gist.words()))]
        self._live.update(Group(*lines if self._beside else [Text(self._title), *lines]), refresh=True)


class Notebook(Watcher):
    """The same in a notebook: one output that is kept up to date."""

    def __init__(self, title: str) -> None:
        """Prepare the display; it appears when training begins."""
        self._title = title
        self._handle: Any = None
        self._gist: Gist | None = None
        self._shown = 0.0

    def begin(self, history: History, last: int) -> None:
        """Show the output."""
        from IPython.display import display

        self._gist = Gist(history, last)
        self._handle = display(self._page(), display_id=True)  # type: ignore[no-untyped-call]

    def heard(self, clients: int, total: int) -> None:
        """Count the round's clients."""
        if self._gist is not None:
            self._gist.heard(clients, total)
            self._refresh()

    def round(self, record: dict[str, Any]) -> None:
        """Move the run's bar."""
        if self._gist is not None:
            self._gist.round(record)
            self._refresh(force=record["round"] == self._gist.pace.last)

    def close(self) -> None:
        """Leave the last state in the notebook."""
        if self._gist is not None:
            self._gist.clients = ""
            self._refresh(force=True)

    def _refresh(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._handle is not None and (force or now - self._shown >= NOTEBOOK_REFRESH):
            self._shown = now
            self._handle.update(self._page())

    def _page(self) -> Any:
        from IPython.display import HTML

        assert self._gist is not None
        pace = self._gist.pace
        bar = f'<progress value="{pace.done}" max="{pace.last}"></progress>'
        lines = [html.escape(text) for text in (self._title, self._gist.far(), "  ".join(self._gist.words()))]
        return HTML(  # type: ignore[no-untyped-call]
            f"<div><b>{lines[0]}</b> {bar} {lines[1]}<br>{lines[2]}</div>"
        )


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


class Lines(Watcher):
    """A line per round, or one every few seconds when rounds are short."""

    def __init__(self, console: Console, title: str) -> None:
        """Prepare."""
        self._console, self._title = console, title
        self._written = 0.0

    def stage(self, text: str) -> None:
        """Say what happens before training begins."""
        self._print(f"{self._title}: {text}")

    def begin(self, history: History, last: int) -> None:
        """Say that training begins or continues."""
        self._pace = Pace(history.last, last)
        how = f"continues after round {history.last}" if history.last else "begins"
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
