"""`fedquilt watch`: the page of a report, kept up to date during runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import say, warn

EXAMPLE = "fedquilt watch runs/demo"


def watch(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Run folders, folders of runs, or experiments.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8765,
    target: Annotated[float | None, typer.Option(help="Target accuracy (default: 95% of the best).")] = None,
) -> None:
    """Serve the page of a report on this machine alone; it grows during runs. Ctrl-C ends it."""
    from fedquilt.experiment.page.watch import Watch
    from fedquilt.experiment.report import gather

    served = Watch(paths, lambda chosen, reader: gather(chosen, reader, target)[0], port)
    for path in paths:
        if not path.exists():
            warn(f"{path}: there is no such folder yet; the page shows it as soon as there is")
    try:
        say(f"Open {served.address} in a browser. It is served to this machine alone; Ctrl-C ends it.")
        served.serve()
    except KeyboardInterrupt:
        say("Ended; the runs continue.")
