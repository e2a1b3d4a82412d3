"""`fedquilt sweep`: run the trials of an experiment."""

from __future__ import annotations

import shlex
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import fedquilt
from fedquilt.analysis.standing import HINT
from fedquilt.cli.console import FAILED, INTERRUPTED, by_reason, complain, out, say, warn
from fedquilt.cli.options import ExperimentFile, Jobs, NoImport, Only, Out, Scale, Sets, Unsets
from fedquilt.cli.report import show_results

if TYPE_CHECKING:
    from fedquilt.experiment.design.experiment import Experiment
    from fedquilt.experiment.sweeping.executors import Executor
    from fedquilt.experiment.sweeping.sweep import SweepResult

EXAMPLE = "fedquilt sweep experiments/mcmahan-2017/table-1.toml --scale small"
UNTOUCHED = "Interrupted before any training began: nothing was started, and nothing saved."


def sweep(
    file: ExperimentFile,
    scale: Scale = None,
    jobs: Jobs = None,
    only: Only = None,
    sets: Sets = None,
    unsets: Unsets = None,
    folder: Out = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so many minutes; the same command continues later.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="Run the trials on a Ray cluster: ray://HOST:PORT, ray://auto or ray://local.")
    ] = None,
    no_import: NoImport = False,
) -> None:
    """Run an experiment's trials, several at once; finished ones are kept, interrupted ones continued."""
    from fedquilt.experiment.sweeping.display import sweep_display
    from fedquilt.experiment.sweeping.local import LocalExecutor

    display = sweep_display(out, file.stem)
    budget = None if minutes is None else 60 * minutes
    # The process that trials are started from imports PyTorch while this one does, and not after it.
    with ExitStack() as stack:
        here: Executor | None = stack.enter_context(closing(LocalExecutor())) if on is None else None
        stack.enter_context(closing(display))
        experiment = fedquilt.experiment(file, sets or (), unsets or (), scale, only or ())
        if here is None:
            here, jobs = _on_cluster(stack, str(on), experiment, folder, jobs)
        done = fedquilt.sweep(experiment, (), folder, jobs, (), None, display, (), budget, here)
    _close(done)
    if done.interrupted or done.out_of_time:
        again = ["fedquilt", "sweep", str(file), *_words("--scale", scale), *_words("--jobs", jobs)]
        again += [word for case in only or () for word in ("--only", case)]
        again += [word for change in sets or () for word in ("--set", change)]
        again += [word for key in unsets or () for word in ("--unset", key)] + _words("--out", folder)
        again += _words("--minutes", None if minutes is None else f"{minutes:g}") + ["--no-import"] * no_import
        again += _words("--on", on)
        say(f"{'Interrupted' if done.interrupted else 'Out of time'}. Continue with: {shlex.join(again)}")
        raise typer.Exit(INTERRUPTED)
    states = [row.state for row in done.trials]
    if all(state == "diverged" for state in states):
        complain(f"every trial diverged. {HINT}.")
    if all(state == "diverged" for state in states) or "failed" in states:
        raise typer.Exit(FAILED)


def _on_cluster(
    stack: ExitStack, address: str, experiment: Experiment, folder: Path | None, jobs: int | None
) -> tuple[Executor, int]:
    """Connect to a cluster; return what runs trials on it, and how many of them at once."""
    from fedquilt.base.errors import SpecError
    from fedquilt.engines.cluster.connection import cluster, require_free
    from fedquilt.engines.cluster.nodes import require_alike
    from fedquilt.experiment.sweeping.on_cluster import ClusterExecutor
    from fedquilt.experiment.sweeping.sweep import sweep_folder

    if not address.startswith("ray://"):
        raise SpecError(f"--on {address}: write ray://HOST:PORT, ray://auto or ray://local")
    engines = [trial.spec.parts["engine"].arguments for trial in experiment.trials]
    cpus = max((engine.get("workers") or 1 for engine in engines), default=1)
    found = stack.enter_context(cluster(address.removeprefix("ray://")))
    needs = {"CPU": float(cpus)}
    require_free(found, needs)
    require_alike(found, mixed=False)
    executor = stack.enter_context(closing(ClusterExecutor(found, folder or sweep_folder(experiment), cpus)))
    return executor, jobs or max(found.room(needs), 1)


def _words(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


def _close(done: SweepResult) -> None:
    """Say how the trials ended, and where their results are."""
    for names, first in by_reason(row for row in done.trials if row.state in ("failed", "diverged")):
        why = f": {first.reason}" if first.reason else ""
        warn(f"{names} {first.state}{why} (see {done.folder / first.name / 'log.txt'})")
    some = any(row.state == "finished" for row in done.trials)
    if some:
        show_results(done.table)
    say(f"Trials: {done.folder}")
    if some and not (done.interrupted or done.out_of_time):
        say(f"Page: fedquilt report {shlex.quote(str(done.folder))}")
