"""`fedquilt list`: what a spec can name."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedquilt.base import registry
from fedquilt.cli.console import out

EXAMPLE = "fedquilt list methods"


class Kind(StrEnum):
    """What `list` lists."""

    methods = "methods"
    wrappers = "wrappers"
    simulations = "simulations"
    models = "models"
    datasets = "datasets"
    partitions = "partitions"
    engines = "engines"
    losses = "losses"
    metrics = "metrics"


def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List what a spec can name."""
    lists: dict[str, registry.Registry] = {kind.value: getattr(registry, kind.value)}
    if kind is Kind.methods:  # what changes a method is a method to whoever looks for one
        lists = {"[method]": registry.methods, "[[wrap]]": registry.wrappers, "[[simulate]]": registry.simulations}
    for title, chosen in lists.items():
        if not out.is_terminal:
            where = f"\t{title}" if len(lists) > 1 else ""
            for name in chosen:
                print(f"{name}\t{chosen.summary(name)}{where}")
            continue
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        if len(lists) > 1:
            table.title, table.title_justify = f"for {escape(title)}", "left"
        for name in chosen:
            table.add_row(f"[bold]{name}[/bold]", escape(chosen.summary(name)))
        out.print(table)
