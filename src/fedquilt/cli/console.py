"""Where the command line writes: nothing that a spec, a file or a client has put into a text reaches a terminal raw.

Exit codes, which scripts rely on, are here too; 0 is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedquilt.base.text import counted, visible

if TYPE_CHECKING:
    from fedquilt.experiment.sweeping.board import TrialProgress

FAILED = 1
"""The run failed."""

WRONG = 2
"""Wrong usage, spec or folder."""

INTERRUPTED = 130
"""Interrupted, and can be resumed."""


def console(stderr: bool = False) -> Console:
    r"""Return a console that shows control characters in what it is given, instead of sending them on.

    Colours, bars and cursor movements of our own are not text, and stay.

    >>> console().print("a name: \x1b]0;title", markup=False)
    a name: \x1b]0;title
    """
    return _Visible(stderr=stderr, emoji=False)


class _Visible(Console):
    """A console through which all text goes piece by piece: of tables and live displays too."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the pieces that something is shown as."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text, 10 * len(segment.text), keep="\n"), segment.style)


out = console()
err = console(stderr=True)


def say(text: str) -> None:
    """Write a line, which is not broken: a command or a path in it can be copied."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def complain(error: Exception | str) -> None:
    """Write an error."""
    err.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Write a warning; takes what `warnings.showwarning` is given."""
    err.print(f"warning: {message}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def by_reason(trials: Iterable[TrialProgress]) -> Iterable[tuple[str, TrialProgress]]:
    """Put trials that ended alike together: yield their names in a few words, and the first of them."""

    def how(row: TrialProgress) -> tuple[str, str]:
        return row.state, row.reason or ""

    for _, alike in groupby(sorted(trials, key=how), key=how):
        rows = list(alike)
        yield in_a_few_words([row.name for row in rows]), rows[0]


def in_a_few_words(names: Sequence[str]) -> str:
    """Name the first, and count the others."""
    first, *others = names
    return first + (f" and {counted(len(others), 'other')}" if others else "")
