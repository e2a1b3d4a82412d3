"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


def _refuse_imports(context: typer.Context, asked: bool) -> bool:
    """Refuse code from specs for as long as the command runs, before it does anything."""
    if asked:
        from fedquilt.experiment.imports import no_import

        context.with_resource(no_import())
    return asked


Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a key of the spec; repeatable.")
]
Unsets = Annotated[
    list[str] | None, typer.Option("--unset", metavar="TABLE.KEY", help="Take a key out of the spec; repeatable.")
]
NoImport = Annotated[
    bool,
    typer.Option(
        "--no-import",
        callback=_refuse_imports,
        envvar="FEDQUILT_NO_IMPORT",
        help="Refuse a spec that names code to import: for specs and runs of others.",
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", file_okay=False, help="The folder to write to (default: runs/NAME).")
]
ExperimentFile = Annotated[Path, typer.Argument(metavar="FILE", help="An experiment file (TOML).")]
Scale = Annotated[str | None, typer.Option("--scale", help="The name of one of the experiment's scales.")]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Trials at once (default: one per core).")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="CASE",
        help="Run the trials of this case only; repeatable: cases of one axis are all run, those of several axes combined.",
    ),
]


class WhichModel(StrEnum):
    """Which model of a run."""

    last = "last"
    best = "best"


Which = Annotated[WhichModel, typer.Option(help='The last model, or the best one of a run with \\[run] keep = "best".')]
RunFolderPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
