"""`fedquilt report`: compare runs and experiments on a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table

import fedquilt
from fedquilt.base.text import percent
from fedquilt.cli.console import out, say, warn

if TYPE_CHECKING:
    from fedquilt.experiment.page.table import TextTable
    from fedquilt.experiment.results.cells import Cell
    from fedquilt.experiment.results.table import ResultTable

EXAMPLE = "fedquilt report runs/a runs/b --out runs/report"


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Run folders, folders of runs, or folders of experiments.")
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            file_okay=False,
            help="Where to save the page, tables and figures (default: PATH/report; of several, runs/report).",
        ),
    ] = None,
    target: Annotated[float | None, typer.Option(help="Target accuracy (default: 95% of the best).")] = None,
) -> None:
    """Write a page that compares runs, with its tables and figures as files."""
    # A folder of runs may hold files beside them: `runs/grid/*` names those too.
    done = fedquilt.report([path for path in paths if not path.is_file()] or paths, folder, target)
    for part in done.parts:
        if part.result is not None:
            show_results(part.result)
        for shown in part.tables if part.result is None else ():
            out.print(_runs(shown.without_empty(), done.target))
    for text in done.damage:
        warn(text)
    say(f"Tables and figures: {done.page.parent}")
    say(f"Open in a browser: {done.page}")


def _runs(shown: TextTable, target: float | None) -> Table:
    """Lay a table of runs out for a terminal: without what only a page has room for."""
    hidden = {"method", "partition", "rounds", "MB sent"}
    if "last accuracy" in shown.header:
        hidden.add("last loss")
    if "state" in shown.header and all(row[shown.header.index("state")] == "finished" for row in shown.rows):
        hidden.add("state")
    short = {"last accuracy": "last", "best accuracy": "best"}
    short["rounds to target"] = f"rounds to {percent(target) if target else 'target'}"
    kept = [index for index, name in enumerate(shown.header) if name not in hidden]
    first, *others = (short.get(shown.header[index], shown.header[index]) for index in kept)
    table = Table(Column(first, overflow="fold", min_width=12), *others)
    for row in shown.rows:
        table.add_row(*(escape(row[index]) for index in kept))
    return table


def show_results(table: ResultTable) -> None:
    """Print a table in its rows and columns, ours with what was published below, and what is to be known of it."""
    from fedquilt.experiment.results.table import AT_EDGE

    out.print(f"[italic]{escape(table.title)}[/italic]")  # not as the table's: a narrow table would break it
    shown = _shaped(table)
    fits = Measurement.get(out, out.options.update(max_width=1000), shown).maximum <= out.width
    out.print(shown if fits else _listed(table))
    for note in table.notes:
        if note.startswith(AT_EDGE):
            warn(note)
        else:
            say(note)


def _shaped(table: ResultTable) -> Table:
    """Lay a table out in its rows and columns."""
    heads = [Column(escape(axis), overflow="fold") for axis in table.row_axes]
    heads += [Column(escape(name), justify="right") for name in table.column_names]
    shown = Table(*heads)
    for row, cells in zip(table.rows, table.cells, strict=True):
        shown.add_row(*map(escape, row), *map(_text, cells))
    return shown


def _listed(table: ResultTable) -> Table:
    """Lay a table out with a line for each cell, where its columns do not fit side by side."""
    axes = (*table.row_axes, *table.column_axes)
    shown = Table(*(Column(escape(axis), overflow="fold") for axis in axes), Column("ours", justify="right"))
    for row, cells in zip(table.rows, table.cells, strict=True):
        for column, cell in zip(table.columns, cells, strict=True):
            if cell is not None:
                shown.add_row(*map(escape, (*row, *column)), _text(cell))
    return shown


def _text(cell: Cell | None) -> str:
    from fedquilt.experiment.design.keys import short_label
    from fedquilt.experiment.results.written import ours, published

    if cell is None:
        return ""
    style, plain = ("bold", "**") if cell.best else ("underline", "_") if cell.marked else ("default", "")
    mark = "" if out.is_terminal else plain  # in a file or a pipe, nothing is bold
    lines = [f"[{style}]{mark}{ours(cell)}{mark}[/{style}]"]
    if cell.chosen and cell.value is not None:
        lines.append(f"[dim]{escape(short_label(cell.chosen))}[/dim]")
    theirs = published(cell.published, cell.metric)
    return "\n".join([*lines, *([f"[dim]published {escape(theirs)}[/dim]"] if theirs else [])])
