"""`fedquilt explain`: the page of something that a spec can name."""

from __future__ import annotations

import re
import textwrap
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from fedquilt.cli.console import out, say
from fedquilt.experiment.explain import Page
from fedquilt.experiment.explain import explain as page_of

EXAMPLE = "fedquilt explain fed_avg_m"

_WIDEST = 100
"""Columns of text: longer lines are hard to read."""


def explain(
    name: Annotated[str, typer.Argument(help="A method, wrapper, simulation, model, data set, partition, …")],
) -> None:
    """Explain what a spec can name: what it does, its arguments, an example, the paper."""
    page = page_of(name)
    width = min(out.width, _WIDEST)
    article = "an" if page.kind[0] in "aeiou" else "a"
    out.print(f"[bold]{page.name}[/bold]: {article} {page.kind}, in {escape(page.where)}", highlight=False)
    say("")
    for line in wrapped(page.text, width):
        say(line)
    _title("In a spec")
    for line in page.example.splitlines():
        say(f"    {line}")
    if page.arguments:
        _title("Arguments")
        out.print(_arguments(page), width=width)
    if page.origin and page.origin.strip() != page.text.partition("\n")[0]:
        _title("Background")
        for line in wrapped(page.origin, width):
            say(line)


def _title(words: str) -> None:
    out.print(f"\n[bold]{words}[/bold]")


def _arguments(page: Page) -> Table:
    table = Table(Column(no_wrap=True), Column(overflow="fold"), Column(), show_header=False, box=None)
    for each in page.arguments:
        default = "required" if each.default is None else _as_toml(each.default)
        table.add_row(f"    [bold]{each.name}[/bold]", escape(default), escape(each.takes))
    return table


def _as_toml(default: str) -> str:
    words = {"None": "not given", "True": "true", "False": "false"}
    return words.get(default, default.replace("'", '"'))


def wrapped(docstring: str, width: int) -> list[str]:
    r"""Break a docstring into lines of that width; lists keep their items, formulas their lines; examples are left out.

    >>> wrapped("One two\nthree.\n\n- a list\n  of two\n- items\n\n>>> 1 + 1\n2\n", 10)
    ['One two', 'three.', '', '- a list', '  of two', '- items']
    """
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", docstring.strip()):
        if block.startswith(">>>"):
            continue
        lines += ["", *_block(block, width)] if lines else _block(block, width)
    return lines


def _block(block: str, width: int) -> list[str]:
    """Break one paragraph or list, of which formulas are lines that are indented by four."""
    pieces: list[str] = []
    for line in block.splitlines():
        if line.startswith("    ") or line.startswith("- ") or not pieces or pieces[-1].startswith("    "):
            pieces.append(line)
        else:
            pieces[-1] += f" {line.strip()}"
    broken: list[str] = []
    for piece in pieces:
        formula = piece.startswith("    ")
        squeezed = "    " + re.sub(r" {2,}", "  ", piece.strip())
        indent = "      " if formula else "  " if piece.startswith("- ") else ""
        broken += textwrap.wrap(
            squeezed if formula and len(piece) > width else piece,
            width,
            subsequent_indent=indent,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
    return broken
