"""`fedquilt evaluate`: measure a run's trained model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import fedquilt
from fedquilt.base.text import figure
from fedquilt.cli.console import out
from fedquilt.cli.options import NoImport, RunFolderPath, Which, WhichModel

EXAMPLE = "fedquilt evaluate runs/first --data mnist"


class SplitChoice(StrEnum):
    """A part of a data set."""

    test = "test"
    train = "train"
    validation = "validation"


def evaluate(
    run_folder: RunFolderPath,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="NAME", help="Other data: a data set, a spec file with \\[data], or a CSV file."
        ),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="DATA.KEY=VALUE", help="Change a key of the data; repeatable.")
    ] = None,
    split: Annotated[SplitChoice, typer.Option(help="The part of the data.")] = SplitChoice.test,
    checkpoint: Annotated[Path | None, typer.Option(help="One of the run's checkpoints (default: the newest).")] = None,
    which: Which = WhichModel.last,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    no_import: NoImport = False,
) -> None:
    """Measure a run's trained model on its test data, or on other data."""
    from fedquilt.experiment.summary import as_json

    found = fedquilt.evaluate(run_folder, data, sets or (), split.value, checkpoint, which.value)
    if json:
        print(as_json(found))  # plain print: Rich would wrap long lines
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    about = f"{found['data']}, {found['split']}: {found['examples']:,} examples, after round {found['round']}"
    table.add_row("[bold]data[/bold]", escape(about))
    for name, text in _figures(found).items():
        table.add_row(f"[bold]{escape(name)}[/bold]", text)
    for number, group in enumerate(found.get("groups", []), start=1):
        words = ", ".join(f"{name} {text}" for name, text in _figures(group).items())
        table.add_row(f"[bold]group {number}[/bold]", escape(f"{group['clients']} clients: {words}"))
    out.print(table)


def _figures(found: dict[str, Any]) -> dict[str, str]:
    shown = {} if found["accuracy"] is None else {"accuracy": found["accuracy"]}
    shown |= {"loss": found["loss"]} | found.get("metrics", {})
    return {name: figure(name, value) for name, value in shown.items()}
