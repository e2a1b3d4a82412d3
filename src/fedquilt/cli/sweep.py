"""`fedquilt sweep`: run a spec over a grid of values."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

import fedquilt
from fedquilt.analysis.divergence import HINT
from fedquilt.base.text import figure, percent
from fedquilt.cli.console import complain, out, say
from fedquilt.cli.exits import FAILED, INTERRUPTED
from fedquilt.cli.options import NoImport, Out, Sets, Unsets
from fedquilt.experiment.design.experiment import load_experiment
from fedquilt.experiment.progress import Lines, Live, watcher

EXAMPLE = "fedquilt sweep experiments/mcmahan-2017/table-1-iid-b10.toml"
UNTOUCHED = "Interrupted before any training began: nothing was started, and nothing saved."


def sweep(
    spec: Annotated[Path, typer.Argument(help="An experiment file.")],
    sets: Sets = None,
    unsets: Unsets = None,
    folder: Out = None,
    no_import: NoImport = False,
) -> None:
    """Run a spec over a grid of values; finished points are kept, interrupted ones go on."""
    checked = load_experiment(spec, sets or (), unsets or ())
    displays: list[Live | Lines] = []

    def announce(name: str, number: int, total: int) -> Live | Lines:
        for shown in displays:
            shown.close()
        displays.append(watcher(out, f"[{number}/{total}] {name}"))
        return displays[-1]

    try:
        done = fedquilt.sweep(checked, (), folder, announce)
    finally:
        for shown in displays:
            shown.close()
    target = "target" if done.target is None else percent(done.target)
    by_loss = all(point.best is None for point in done.points) and any(point.loss is not None for point in done.points)
    best = "lowest loss" if by_loss else "best accuracy"
    table = Table(Column("point", overflow="fold"), best, title=spec.stem, title_justify="left")
    if done.target is not None:
        table.add_column(f"rounds to {target}")
    for point in done.points:
        score = figure("loss", point.loss) if by_loss else percent(point.best)
        score = {"finished": score, "not run": "not run"}.get(point.state, f"{score} ({point.state})")
        crossed = "–" if point.rounds_to_target is None else f"{point.rounds_to_target:.1f}"
        cells = [score] if done.target is None else [score, crossed]
        table.add_row(escape(point.name), *cells, style="bold" if point is done.winner else "")
    out.print(table)
    ended = sum(point.state in ("finished", "diverged") for point in done.points)
    far = f" of the {ended} of {len(done.points)} points that are done" if ended < len(done.points) else ""
    if done.winner is not None and done.reached is False:
        nearest = f"loss {figure('loss', done.winner.loss)}" if by_loss else percent(done.winner.best)
        say(f"No point reached {target}; the nearest{far}: {done.winner.name}, with {nearest}")
    elif done.winner is not None:
        say(f"best{far}: {done.winner.name}")
    for where, value in done.published.items():
        say(f"published, {where}: {value}")
    say(f"Results: {done.results}")
    if done.interrupted:
        again = ["fedquilt", "sweep", str(spec), *(word for change in sets or () for word in ("--set", change))]
        again += [word for key in unsets or () for word in ("--unset", key)] + ["--no-import"] * no_import
        say(f"Interrupted. Go on with: {shlex.join([*again, '--out', str(folder)] if folder else again)}")
        raise typer.Exit(INTERRUPTED)
    if all(point.diverged for point in done.points):
        complain(f"every point diverged. {HINT}.")
        raise typer.Exit(FAILED)
