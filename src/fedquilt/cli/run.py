"""`fedquilt run`: train as a spec says."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import fedquilt
from fedquilt.analysis.standing import WORDS, ending
from fedquilt.base.text import counted, figure, percent, scores
from fedquilt.cli.console import FAILED, INTERRUPTED, complain, out, say
from fedquilt.cli.options import NoImport, Out, Sets, Unsets
from fedquilt.experiment.progress import watcher

if TYPE_CHECKING:
    from fedquilt.experiment.run import Run

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
    display = watcher(out, spec.stem if folder is None else folder.name)
    try:
        ended = fedquilt.run(checked, (), folder, display)
    finally:
        display.close()
    close(ended)


def close(ended: Run) -> None:
    """Say how a run ended and where its files are; exit with a code that says so."""
    result, path = ended.result, ended.folder
    if result.interrupted:
        when = f"after round {result.run.round}" if result.run.round else "before the first round was done"
        say(f"Interrupted {when}; nothing is lost.")
        say(f"Continue with: fedquilt resume {shlex.quote(str(path))}")
        raise typer.Exit(INTERRUPTED)
    history = result.history
    best, lowest = (history.best, history.lowest) if history.whole else (None, None)  # else they are not known
    done = result.run.round
    per_client = next(
        (r["per_client_accuracy"] for r in reversed(result.history.records) if r.get("per_client_accuracy")), None
    )
    words = f"{'Finished' if result.diverged is None else 'Ended after'} {counted(done, 'round')}: "
    first, *others = scores(history.newest or {"accuracy": None, "loss": None})
    if best:
        first += f", best {percent(best[1])} in round {best[0]}"
    elif lowest:
        first += f", lowest {figure('loss', lowest[1])} in round {lowest[0]}"
    words += ", ".join([first, *others])
    say(words + (f"; per-client accuracy {percent(per_client)}" if per_client is not None else ""))
    if result.stopped is not None:
        say(f"Stopped early: {result.stopped}")
    if result.best_models and result.best is not None:
        value = figure(result.best.by.removeprefix("validation_"), result.best.value)
        say(f"Best model: that of round {result.best.round}, with {WORDS[result.best.by]} {value}")
    say(f"Model SHA-256: {result.digest}")
    say(f"Run folder: {path}")
    say(f"Page: fedquilt report {shlex.quote(str(path))}")
    if result.diverged is not None:
        complain(ending(result.diverged))
        raise typer.Exit(FAILED)
    if not any(record["applied"] for record in result.history):
        complain(f"no round changed the model: every client was left out; see `fedquilt show {shlex.quote(str(path))}`")
        raise typer.Exit(FAILED)
