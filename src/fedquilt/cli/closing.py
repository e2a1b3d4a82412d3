"""What is said at the end of a run, or of one that was resumed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from fedquilt.analysis.divergence import ending
from fedquilt.base.text import counted, figure, percent, scores
from fedquilt.cli.console import complain, say
from fedquilt.cli.exits import FAILED, INTERRUPTED

if TYPE_CHECKING:
    from fedquilt.experiment.run import Run


def close(ended: Run) -> None:
    """Say how a run ended and where its files are; exit with a code that says so."""
    result, path = ended.result, ended.folder
    if result.interrupted:
        when = f"after round {result.run.round}" if result.run.round else "before the first round was done"
        say(f"Interrupted {when}; nothing is lost.")
        say(f"Go on with: fedquilt resume {shlex.quote(str(path))}")
        raise typer.Exit(INTERRUPTED)
    history = result.history
    best, lowest = (history.best, history.lowest) if history.whole else (None, None)  # else they are not known
    done = result.run.round
    own = next(
        (r["per_client_accuracy"] for r in reversed(result.history.records) if r.get("per_client_accuracy")), None
    )
    words = f"{'Finished' if result.diverged is None else 'Ended after'} {counted(done, 'round')}: "
    first, *others = scores(history.newest or {"accuracy": None, "loss": None})
    if best:
        first += f", best {percent(best[1])} in round {best[0]}"
    elif lowest:
        first += f", lowest {figure('loss', lowest[1])} in round {lowest[0]}"
    words += ", ".join([first, *others])
    say(words + (f"; on clients' own data {percent(own)}" if own is not None else ""))
    say(f"Model SHA-256: {result.digest}")
    say(f"Run folder: {path}")
    say(f"Page: fedquilt report {shlex.quote(str(path))}")
    if result.diverged is not None:
        complain(ending(result.diverged))
        raise typer.Exit(FAILED)
    if not any(record["applied"] for record in result.history):
        complain(f"no round changed the model: every client was left out; see `fedquilt show {shlex.quote(str(path))}`")
        raise typer.Exit(FAILED)
