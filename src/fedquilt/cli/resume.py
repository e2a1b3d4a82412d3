"""`fedquilt resume`: continue a run that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import fedquilt
from fedquilt.cli.console import out, say
from fedquilt.cli.options import NoImport, RunFolderPath
from fedquilt.cli.run import close
from fedquilt.experiment.progress import watcher

EXAMPLE = "fedquilt resume runs/first"
UNTOUCHED = "Interrupted before training went on: the run is as it was."


def resume(
    run_folder: RunFolderPath,
    rounds: Annotated[int | None, typer.Option(help="Run up to this many rounds instead.")] = None,
    changes: Annotated[
        list[str], typer.Option("--set", help="Change where clients are trained: --set engine.name=inline. Repeatable.")
    ] = [],  # noqa: B006 - Typer copies it
    no_import: NoImport = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Train again from the first round; the present files are set aside.")
    ] = False,
) -> None:
    """Continue an interrupted run from its newest intact checkpoint."""
    from fedquilt.experiment.summary import quiet_summary

    before = quiet_summary(run_folder)
    if before["spec"].get("engine", {}).get("name") == "flower":
        from fedquilt.cli.deploy import resume_at_sites

        resume_at_sites(run_folder, rounds)
        return
    finished = before["state"] in ("finished", "diverged") and (rounds is None or rounds <= before["round"])
    finished = finished and not from_start
    display = None if finished else watcher(out, run_folder.name)
    aside = _set_aside(run_folder)
    try:
        # A finished run is opened all the same: its result is said again.
        ended = fedquilt.resume(run_folder, rounds, display, from_start, sets=changes)
    finally:
        if display is not None:
            display.close()
    moved = sorted(_set_aside(run_folder) - aside)
    for path in moved:
        say(f"Set aside: {path}")
    if moved:
        say("What was set aside is kept as it was before this resume; the run does not need it.")
    if before["state"] == "diverged" and len(ended.result.history) == before["round"]:
        say("The run had diverged already, and stays as it is: change its spec and run that anew.")
    elif finished:
        ends = before["rounds"] < before["spec"].get("run", {}).get("rounds", 0)
        longer = "; --rounds makes it longer" if before["round"] >= before["rounds"] else ""
        longer = f"; its method ends by itself after round {before['rounds']}" if ends else longer
        say(f"The run was finished already: nothing to do{longer}.")
    close(ended)


def _set_aside(folder: Path) -> set[Path]:
    from fedquilt.experiment.contents import ASIDE

    return {*(folder / ASIDE).glob("*")}
