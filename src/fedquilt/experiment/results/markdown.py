"""A table of results as Markdown."""

from __future__ import annotations

from fedquilt.experiment.design.keys import short_label
from fedquilt.experiment.results.cells import Cell
from fedquilt.experiment.results.table import ResultTable
from fedquilt.experiment.results.written import difference, ours, published


def to_markdown(table: ResultTable) -> str:
    """Write a table as Markdown: ours, and beside it what was published and the difference."""
    heads = [*table.row_axes]
    for name, compares in zip(table.column_names, table.compares, strict=True):
        heads += [name, *(table.compared_with if compares else [])]
    lines = [f"**{_plain(table.title)}**", ""]
    lines += [table.caption, ""] if table.caption else []
    lines += [_line(heads), _line(["---"] * len(table.row_axes) + ["---:"] * (len(heads) - len(table.row_axes)))]
    for row, cells in zip(table.rows, table.cells, strict=True):
        words = [*row]
        for cell, compares in zip(cells, table.compares, strict=True):
            words += _words(cell, len(table.compared_with) if compares else 0)
        lines.append(_line(words, escaped=len(row)))
    lines += ["", *(f"{note}  " for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def _words(cell: Cell | None, beside: int) -> list[str]:
    """Write our value, and what stands beside it in so many columns."""
    if cell is None:
        return [""] * (1 + beside)
    text = ours(cell)
    text = f"**{text}**" if cell.best else f"<u>{text}</u>" if cell.marked else text
    if cell.chosen and cell.value is not None:
        text += f"<br><small>{_plain(short_label(cell.chosen))}</small>"
    return [text, *[published(cell.published, cell.metric), difference(cell)][:beside]]


def _line(words: list[str], escaped: int | None = None) -> str:
    plain = [_plain(word) if escaped is None or index < escaped else word for index, word in enumerate(words)]
    return f"| {' | '.join(plain)} |"


def _plain(text: str) -> str:
    """Keep text of a user's from being read as Markdown, and in one line.

    >>> _plain("a|b *c*")
    'a\\\\|b \\\\*c\\\\*'
    """
    text = " ".join(text.split())
    return "".join(f"\\{each}" if each in "\\`*_|<>[]#" else each for each in text) if text.strip("-:") else text
