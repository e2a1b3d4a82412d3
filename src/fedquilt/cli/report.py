"""`fedquilt report`: compare runs and experiments on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

import fedquilt
from fedquilt.cli.console import out, say, warn

EXAMPLE = "fedquilt report runs/a runs/b --out runs/report"


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Run folders, folders of runs, or folders of experiments.")
    ],
    folder: Annotated[
        Path, typer.Option("--out", "-o", file_okay=False, help="Where to save the page, tables and figures.")
    ] = Path("runs/report"),
    target: Annotated[float | None, typer.Option(help="Target accuracy (default: 95% of the best).")] = None,
) -> None:
    """Write a page that compares runs, with its tables and figures as files."""
    # A folder of runs may hold files beside them: `runs/grid/*` names those too.
    done = fedquilt.report([path for path in paths if not path.is_file()] or paths, folder, target)
    for shown in done.tables:
        short = shown.without_empty()
        hidden = {"method", "partition", "rounds", "MB sent"} if len(short.header) > 6 else set()
        if all(row[short.header.index("state")] == "finished" for row in short.rows if "state" in short.header):
            hidden |= {"state"}
        kept = [place for place, name in enumerate(short.header) if name not in hidden]
        head, *others = (short.header[place] for place in kept)
        table = Table(Column(head, overflow="fold"), *others, title=shown.title, title_justify="left")
        for row in short.rows:
            table.add_row(*(escape(row[place]) for place in kept))
        out.print(table)
        if shown.caption:
            say(shown.caption)
    for text in done.damage:
        warn(text)
    say(f"Tables and figures: {folder}")
    say(f"Open in a browser: {done.page}")
