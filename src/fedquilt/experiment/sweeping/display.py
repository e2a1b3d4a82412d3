"""Shows how a sweep goes: a live table on a terminal, a line for what has changed elsewhere.

It is refreshed by the sweep itself and starts no thread.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

import rich.live
from rich.console import Console, Group
from rich.table import Column, Table
from rich.text import Text

from fedquilt.base.text import clock, counted
from fedquilt.experiment.sweeping.board import Board, TrialProgress

REFRESH = 0.2
LINE_EVERY = 10.0
"""Seconds between lines on how far it is, where nothing else is to be said."""

STYLES = {"finished": "green", "diverged": "yellow", "failed": "red", "running": "bold", "waiting": "dim"}


class SweepWatcher(Protocol):
    """Is notified of how a sweep goes."""

    def show(self, board: Board) -> None:
        """Something has changed, or some time has passed."""

    def close(self) -> None:
        """The sweep has ended."""


def sweep_display(console: Console, title: str) -> SweepWatcher:
    """Return what fits the console."""
    return LiveTable(console, title) if console.is_terminal else SweepLines(console, title)


def overview(board: Board) -> str:
    """Say in a line how far a sweep is.

    >>> overview(Board())
    '0 finished, 0 running, 0 waiting'
    """
    left = board.left()
    words = [", ".join(f"{number} {state}" for state, number in board.counts.items())]
    return "; ".join([*words, *([] if left is None else [f"about {clock(left)} left"])])


class LiveTable:
    """The whole in two lines, and below them a table: what runs, what ended last, what comes next."""

    def __init__(self, console: Console, title: str) -> None:
        """Prepare the display; it appears when something is to be shown."""
        self._console, self._title = console, title
        self._live: rich.live.Live | None = None
        self._shown, self._ended = 0.0, -1

    def show(self, board: Board) -> None:
        """Refresh the table, unless that was done just now."""
        ended = sum(row.state not in ("running", "waiting") for row in board.rows)
        now = time.monotonic()
        if now - self._shown < REFRESH and ended == self._ended:
            return
        self._shown, self._ended = now, ended
        if self._live is None:
            self._live = rich.live.Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(self.drawn(board), refresh=True)

    def drawn(self, board: Board) -> Group:
        """Return what is shown."""
        taken = clock(time.monotonic() - board.begun)
        head = Text(f"{self._title}: {overview(board)}", style="bold", overflow="fold")
        best = board.best
        second = "best so far: –" if best is None else f"best so far: {best[0]}, {best[1]}"
        lines = Text(f"{second}  ({taken} so far)", overflow="fold")
        table = Table(
            Column("trial", overflow="ellipsis", no_wrap=True, ratio=1),
            Column("state", no_wrap=True),
            Column("round", justify="right", no_wrap=True),
            Column("best", justify="right", no_wrap=True),
            Column("time", justify="right", no_wrap=True),
            box=None,
            padding=(0, 2, 0, 0),
            expand=True,
        )
        for row in self._chosen(board):
            name = Text(row.name, style=STYLES.get(row.state, ""))
            rounds = f"{row.round}/{row.last or row.trial.spec.options.rounds}"
            table.add_row(name, row.state, rounds, row.score, clock(row.seconds) if row.seconds else "")
        return Group(head, lines, table)

    def _chosen(self, board: Board) -> list[TrialProgress]:
        """Choose the rows that fit the terminal: all that run and, of the others, those next to them."""
        room = max(self._console.height - 6, 3)
        if len(board.rows) <= room:
            return board.rows
        running = [row for row in board.rows if row.state == "running"][:room]
        ended = [row for row in board.rows if row.state not in ("running", "waiting") and not row.kept]
        waiting = [row for row in board.rows if row.state == "waiting"]
        spare = room - len(running)
        coming = waiting[: spare // 2]
        return [*(ended[-(spare - len(coming)) :] if spare > len(coming) else []), *running, *coming]

    def close(self) -> None:
        """Take the table away: results are shown in its place."""
        if self._live is not None:
            self._live.update(Text(""), refresh=True)
            self._live.stop()
            self._live = None


class SweepLines:
    """A line when a trial starts or ends, and now and then one on the whole."""

    def __init__(self, console: Console, title: str) -> None:
        """Prepare."""
        self._console, self._title = console, title
        self._states: dict[int, str] = {}
        self._reasons: dict[str, str] = {}  # why trials failed, and the first that did
        self._said = time.monotonic()

    def show(self, board: Board) -> None:
        """Write what has changed; a reason why several trials failed is written once."""
        kept = sum(row.kept for row in board.rows)
        if not self._states and kept:
            lost = sum(row.kept and row.state == "given up" for row in board.rows)
            words = f"finished before, {lost} given up" if lost else "finished before"
            self._print(f"{self._title}: {counted(kept - lost, 'trial')} of {len(board.rows)} {words}")
        for number, row in enumerate(board.rows):
            before = self._states.get(number)
            if row.state != before and not row.kept and (row.state != "waiting" or before == "running"):
                first = self._reasons.setdefault(row.reason, row.name) if row.reason else row.name
                words = _words_of(row if first == row.name else replace(row, reason=f"for the same reason as {first}"))
                self._print(f"{self._title}: [{number + 1}/{len(board.rows)}] {row.name}: {words}")
            self._states[number] = row.state
        if time.monotonic() - self._said >= LINE_EVERY:
            self._print(f"{self._title}: {overview(board)}")

    def _print(self, text: str) -> None:
        self._said = time.monotonic()
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Nothing to clean up."""


def _words_of(row: TrialProgress) -> str:
    if row.state == "running":
        return f"continues after {counted(row.round, 'round')}" if row.round else "starts"
    done = f"{row.state} after {counted(row.round, 'round')} in {clock(row.seconds)}"
    score = "" if row.accuracy is None and row.loss is None else f", best {row.score}"
    return f"{done}{score}{f': {row.reason}' if row.reason else ''}"
