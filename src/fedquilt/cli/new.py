"""`fedquilt new`: a spec to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedquilt.base.errors import SpecError
from fedquilt.cli.console import say

EXAMPLE = "fedquilt new first.toml"


def new(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("first.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Write a commented spec to start from."""
    from fedquilt.experiment.template import TEMPLATE

    if path.exists() and not force:
        raise SpecError(f"{path}: exists already; choose another name, or overwrite it with --force")
    try:
        path.write_text(TEMPLATE.format(name=path), encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}") from None
    say(f"Wrote {path}. Run it with: fedquilt run {shlex.quote(str(path))}")
