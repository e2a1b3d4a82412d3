"""`fedquilt export`: write a run's trained model to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import fedquilt
from fedquilt.cli.console import say
from fedquilt.cli.options import RunFolderPath, Which, WhichModel

EXAMPLE = "fedquilt export runs/first model.safetensors"


def export(
    run_folder: RunFolderPath,
    file: Annotated[Path, typer.Argument(help="Where to write it: model.safetensors, or model.pt for torch.load.")],
    group: Annotated[
        int | None, typer.Option(help="Which model of a run that ended with several, from 1.", min=1)
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="One of the run's checkpoints (default: the newest).")] = None,
    which: Which = WhichModel.last,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Write a run's trained model to a file, under its state_dict names."""
    written = fedquilt.export(run_folder, file, group, checkpoint, overwrite=force, which=which.value)
    say(f"Wrote {written}")
