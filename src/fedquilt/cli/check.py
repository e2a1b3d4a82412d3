"""`fedquilt check`: what an experiment would run, how long that would take here, and how much memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

import fedquilt
from fedquilt.base.memory import in_words
from fedquilt.base.text import counted
from fedquilt.cli.console import FAILED, by_reason, err, in_a_few_words, out, warn
from fedquilt.cli.options import ExperimentFile, Jobs, NoImport, Only, Out, Scale, Sets, Unsets

if TYPE_CHECKING:
    from fedquilt.experiment.sweeping.check import Estimate

EXAMPLE = "fedquilt check experiments/mcmahan-2017/table-1.toml --scale small"
UNTOUCHED = "Interrupted: nothing was saved."


def check(
    file: ExperimentFile,
    scale: Scale = None,
    jobs: Jobs = None,
    only: Only = None,
    sets: Sets = None,
    unsets: Unsets = None,
    folder: Out = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run no short trials, estimate no time or memory.")] = False,
    no_import: NoImport = False,
) -> None:
    """Say what an experiment would run, and estimate time and memory on this machine from short trials."""
    from fedquilt.experiment.sweeping.check import check as estimate
    from fedquilt.experiment.sweeping.display import sweep_display

    experiment = fedquilt.experiment(file, sets or (), unsets or (), scale, only or ())
    display = sweep_display(err, "short trials") if err.is_terminal else None
    try:
        found = estimate(experiment, folder, jobs, display, measure=not quick)
    finally:
        if display is not None:
            display.close()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in _lines(found).items():
        table.add_row(f"[bold]{name}[/bold]", text)
    out.print(table)
    bad = [row for row in found.short if row.state == "failed"]
    for names, first in by_reason(bad):
        warn(f"the short trial of {names} failed: {first.reason}")
    for reason, alike in found.refused.items():
        warn(f"{in_a_few_words(alike)} cannot be run: {reason}")
    if bad or found.refused:
        raise typer.Exit(FAILED)


def _lines(found: Estimate) -> dict[str, str]:
    experiment, blueprint = found.experiment, found.experiment.blueprint
    asked = zip(experiment.axes, zip(*experiment.cells, strict=True), strict=True) if experiment.cells else ()
    axes = " × ".join(f"{name} ({len(set(cases))})" for name, cases in asked)
    lines = {"experiment": experiment.title, "cells": f"{len(experiment.cells):,}" + (f": {axes}" if axes else "")}
    each = max(found.listed // (len(experiment.cells) * blueprint.repeats), 1)
    tuned = "proposals of a search" if blueprint.search is not None else "combinations of tuned values"
    if each > 1 and (experiment.tuning is None or experiment.tuning.folds is None):
        about = "" if each * len(experiment.cells) * blueprint.repeats == found.listed else "about "
        chosen = experiment.tuning.by if experiment.tuning else "test"
        lines["tuned"] = f"{about}{each} {tuned} a cell, chosen by the {chosen} set"
    if experiment.tuning is not None and experiment.tuning.folds is not None:
        lines["tuned"] = f"{experiment.tuning.folds} folds, then the chosen values on all training data"
    if blueprint.repeats > 1:
        lines["repeats"] = str(blueprint.repeats)
    done = found.listed - found.trials - found.given_up
    lost = f" and {found.given_up:,} given up" if found.given_up else ""
    lines["trials"] = f"{found.trials:,} to run" + (f", {done:,} finished{lost} in {found.folder}" if done else "")
    lines["rounds"] = f"{found.rounds:,}"
    lines["at once"] = f"{counted(found.jobs.number, 'trial')}, {counted(found.jobs.workers, 'worker')} each"
    if found.seconds is not None:
        short = counted(len([row for row in found.short if row.state != "failed"]), "short trial")
        lines["time"] = f"about {_duration(found.seconds)} on this machine, from {short}"
    if found.memory is not None:
        total = in_words(found.memory * found.jobs.number)
        lines["memory"] = f"about {in_words(found.memory)} per trial, {total} at once; {in_words(found.free)} are free"
    return lines


def _duration(seconds: float) -> str:
    """Write how long something takes, as roughly as it is known.

    >>> _duration(45), _duration(754), _duration(12_000), _duration(500_000)
    ('45 s', '13 min', '3 h 20 min', '5.8 days')
    """
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{round(seconds)} s"
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 2 * 24 * 60 else f"{seconds / 86_400:.1f} days"
