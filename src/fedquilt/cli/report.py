"""`fedquilt report`: compare runs and experiments on a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

import fedquilt
from fedquilt.cli.console import out, say, warn

if TYPE_CHECKING:
    from fedquilt.experiment.page.table import TextTable
    from fedquilt.experiment.results.table import ResultTable

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
    for part in done.parts:
        if part.result is not None:
            out.print(_results(part.result))
            for fact in part.facts:
                say(fact)
        for shown in part.tables if part.result is None else ():
            out.print(_runs(shown.without_empty()))
            say(shown.caption)
    for text in done.damage:
        warn(text)
    say(f"Tables and figures: {folder}")
    say(f"Open in a browser: {done.page}")


def _results(result: ResultTable) -> Table:
    """Lay the table of an experiment out for a terminal: ours, and what was published below it."""
    from fedquilt.experiment.results.written import ours, published

    columns = [", ".join(column) or "ours" for column in result.columns]
    table = Table(
        *map(escape, result.row_axes), *map(escape, columns), title=escape(result.title), title_justify="left"
    )
    for row, cells in zip(result.rows, result.cells, strict=True):
        words = []
        for cell in cells:
            theirs = "" if cell is None or cell.published is None else published(cell.published, cell.metric)
            text = "" if cell is None else escape(ours(cell))
            text = f"[bold]{text}[/bold]" if cell is not None and cell.best else text
            words.append(f"{text}\n[dim]{escape(theirs)} published[/dim]" if theirs else text)
        table.add_row(*map(escape, row), *words)
    return table


def _runs(shown: TextTable) -> Table:
    """Lay a table of runs out for a terminal, without the columns that all rows could do without."""
    hidden = {"method", "partition", "rounds", "MB sent"} if len(shown.header) > 6 else set()
    states = shown.header.index("state") if "state" in shown.header else None
    if states is not None and all(row[states] == "finished" for row in shown.rows):
        hidden.add("state")
    kept = [place for place, name in enumerate(shown.header) if name not in hidden]
    first, *others = (shown.header[place] for place in kept)
    table = Table(Column(first, overflow="fold"), *others)
    for row in shown.rows:
        table.add_row(*(escape(row[place]) for place in kept))
    return table
