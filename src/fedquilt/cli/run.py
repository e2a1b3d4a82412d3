"""`fedquilt run`: train as a spec says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import fedquilt
from fedquilt.cli.closing import close
from fedquilt.cli.console import out
from fedquilt.cli.options import NoImport, Out, Sets, Unsets
from fedquilt.experiment.progress import watcher

EXAMPLE = "fedquilt run first.toml --set method.lr=0.05 --out runs/slow"
UNTOUCHED = "Interrupted before training began: nothing was started, and nothing saved."


def run(
    spec: Annotated[Path, typer.Argument(help="A spec file (TOML); `fedquilt new` writes one.")],
    sets: Sets = None,
    unsets: Unsets = None,
    folder: Out = None,
    no_import: NoImport = False,
) -> None:
    """Train as a spec says, into a run folder."""
    checked = fedquilt.load_spec(spec, sets or (), unsets or ())  # a typo is answered before PyTorch is imported
    display = watcher(out, spec.stem)
    try:
        ended = fedquilt.run(checked, (), folder, display)
    finally:
        display.close()
    close(ended)
