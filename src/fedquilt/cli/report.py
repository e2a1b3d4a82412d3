"""`fedquilt report`: compare runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

import fedquilt
from fedquilt.base.text import percent
from fedquilt.cli.console import out, say, warn

EXAMPLE = "fedquilt report runs/a runs/b --out runs/report"


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    folder: Annotated[
        Path, typer.Option("--out", file_okay=False, help="Where to save the table and the plot.")
    ] = Path("runs/report"),
    target: Annotated[float | None, typer.Option(help="Target accuracy (default: 95% of the best).")] = None,
) -> None:
    """Compare runs in a table and a plot."""
    from fedquilt.experiment.report import HEADER

    # A sweep's folder holds its results beside the runs: `runs/grid/*` may name that file too.
    done = fedquilt.report([path for path in runs if not path.is_file()] or runs, folder, target)
    per_client = HEADER.index("per client")
    columns = {"last accuracy": "last", "mean of last 10": "mean of last 10", "best accuracy": "best"}
    columns |= {"per client": "per client"} if any(row[per_client] != "–" for row in done.rows) else {}
    if any(row[HEADER.index("last accuracy")] == "–" != row[HEADER.index("last loss")] for row in done.rows):
        columns |= {"last loss": "last loss"}
    columns |= {name: name for name in ("other metrics",) if any(row[HEADER.index(name)] != "–" for row in done.rows)}
    columns |= {"state": "state"} if any(row[HEADER.index("state")] != "finished" for row in done.rows) else {}
    columns |= {"rounds to target": f"rounds to {percent(done.target) if done.target else 'target'}"}
    table = Table(Column("run", no_wrap=True), *columns.values())
    for row in done.rows:
        table.add_row(escape(row[0]), *(escape(row[HEADER.index(name)]) for name in columns))
    out.print(table)
    for text in done.damage:
        warn(text)
    for file in done.files:
        say(f"Wrote {file}")
