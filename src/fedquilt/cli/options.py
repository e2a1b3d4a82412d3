"""Options that several commands have."""

from __future__ import annotations

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
Jobs = Annotated[int | None, typer.Option("--jobs", help="Trials at once (default: one a core).")]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="CASE", help="Run the trials of this case only; repeatable.")
]
RunFolderPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
