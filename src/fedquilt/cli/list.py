"""`fedquilt list`: what a spec can name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedquilt.base import registry
from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.registry import KINDS
from fedquilt.base.text import visible
from fedquilt.cli.console import out

EXAMPLE = "fedquilt list methods"


def list_(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help=f"What to list: {', '.join(KINDS)}. Unset: the names of all.")
    ] = None,
) -> None:
    """List what a spec can name."""
    if kind is None:
        _list_all()
        return
    if kind not in KINDS:
        raise SpecError(f"there is no list '{visible(kind, 80)}'; {nearest(kind, KINDS)}")
    lists = [KINDS[kind]]
    if kind == "methods":  # what changes a method is a method to whoever looks for one
        lists = [registry.methods, registry.wrappers, registry.simulations]
    for chosen in lists:
        if not out.is_terminal:
            where = f"\t{chosen.where}" if len(lists) > 1 else ""
            for name in chosen:
                print(f"{name}\t{chosen.summary(name)}{where}")
            continue
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        if len(lists) > 1:
            table.title, table.title_justify = f"for {escape(chosen.where)}", "left"
        for name in chosen:
            table.add_row(f"[bold]{name}[/bold]", escape(chosen.summary(name)))
        out.print(table)


def _list_all() -> None:
    """List the names of every kind; `fedquilt list KIND` says what each does."""
    if not out.is_terminal:
        for kind, known in KINDS.items():
            print(f"{kind}\t{', '.join(known)}")
        return
    table = Table(box=None, padding=(0, 2, 1, 0), show_header=False)
    for kind, known in KINDS.items():
        table.add_row(f"[bold]{kind}[/bold]", escape(", ".join(known)))
    out.print(table)
    out.print(f"What each of them does: {EXAMPLE}; all about one: fedquilt explain fed_prox")
