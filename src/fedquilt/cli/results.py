"""The table of an experiment on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table

from fedquilt.cli.console import out, say, warn

if TYPE_CHECKING:
    from fedquilt.experiment.results.cells import Cell
    from fedquilt.experiment.results.table import ResultTable


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
    heads += [Column(escape(", ".join(column)) or "ours", justify="right") for column in table.columns]
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
