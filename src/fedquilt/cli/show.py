"""`fedquilt show`: what a run folder says of its run, and a folder of runs of them all."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

import fedquilt
from fedquilt.analysis.standing import ending
from fedquilt.base.errors import RunError
from fedquilt.base.text import amount, clock, counted, figure, percent, scores
from fedquilt.cli.console import out, say, warn
from fedquilt.cli.options import NoImport

if TYPE_CHECKING:
    from fedquilt.experiment.listing import ListedRun

EXAMPLE = "fedquilt show runs/first --json | jq .digest"


def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder, or a folder of runs.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Also train the next round's clients and measure why they disagree.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show rounds as they end, for as long as the run lasts.")
    ] = False,
    no_import: NoImport = False,
) -> None:
    """Show a run: state, rounds, accuracy, best, digest of the model, what was left out; or the runs of a folder."""
    from fedquilt.experiment.listing import listing
    from fedquilt.experiment.page.source import is_run
    from fedquilt.experiment.summary import as_json

    if not is_run(folder) and folder.is_dir() and (runs := listing(folder)):
        if diagnose:
            raise RunError(f"{folder}: holds {counted(len(runs), 'run')}: name one of them to diagnose it")
        if follow:
            _follow(_running(folder, runs))
        elif json:
            print(as_json([run.about() for run in runs]))
        else:
            _list(runs)
        return
    if follow:
        _follow(folder)
        return
    about = fedquilt.summary(folder)
    if diagnose:
        from fedquilt.experiment.diagnosis import diagnose_run

        about["diagnosis"] = diagnose_run(folder)
    if json:
        print(as_json(about))  # plain print: Rich would wrap long lines
        return
    table = Table(Column(no_wrap=True), Column(overflow="fold"), show_header=False, box=None, padding=(0, 2, 0, 0))
    lines = _lines(about)
    digest = lines.pop("digest")
    unbroken = {name: lines.pop(name) for name in ("error", "continue with") if name in lines}
    for name, text in lines.items():
        table.add_row(f"[bold]{escape(name)}[/bold]", escape(text))
    out.print(table)
    # Neither in the table: it would break a digest or a command into lines that cannot be copied.
    wide = max(map(len, lines)) + 2
    out.print(f"[bold]{'digest':{wide}}[/bold]{escape(digest)}", highlight=False, soft_wrap=True)
    for name, text in unbroken.items():
        say(f"{name}: {text}")


def _list(runs: list[ListedRun]) -> None:
    """Print a table of runs that fits into 80 columns."""
    loss = all(run.accuracy is None for run in runs) and any(run.loss is not None for run in runs)
    table = Table(Column("run", overflow="fold"), "state", Column("rounds", justify="right", no_wrap=True))
    table.add_column("loss" if loss else "accuracy", justify="right")
    table.add_column("best", justify="right")
    table.add_column("left", justify="right")
    for run in runs:
        last = figure("loss", run.loss) if loss else percent(run.accuracy)
        best = figure("loss", run.best) if loss else percent(run.best)
        left = "" if run.seconds_left is None else clock(run.seconds_left)
        rounds = "" if run.rounds is None else f"{run.round}/{run.rounds}"
        table.add_row(escape(run.name), escape(run.state), rounds, last, best, left)
    out.print(table)
    counts = Counter(run.state for run in runs)
    say(f"{counted(len(runs), 'run')}: {', '.join(f'{count} {state}' for state, count in counts.items())}")
    for run in runs:
        if run.problem is not None:
            warn(run.problem)


def _running(folder: Path, runs: list[ListedRun]) -> Path:
    """Return the run to follow: one that is running, the first of several."""
    running = [run for run in runs if run.state == "running"]
    if not running:
        names = ", ".join(run.name for run in runs[:5])
        raise RunError(f"{folder}: none of its runs is running: name one of them, such as {names}")
    first, *others = running
    say(f"Following {first.path}{'; also running: ' if others else ''}{', '.join(run.name for run in others)}")
    return first.path


def _follow(folder: Path) -> None:
    """Print the rounds of a run as they come, and how it ended."""
    from fedquilt.experiment.follow import follow
    from fedquilt.experiment.summary import quiet_summary

    about = quiet_summary(folder)
    total = about["rounds"]
    try:
        for record in follow(folder, after=max(about["round"] - 5, 0)):
            words = (
                "" if record["accuracy"] is None and record["loss"] is None else "  ".join(scores(record, loss=True))
            )
            say(f"round {record['round']}{f'/{total}' if total else ''}  {words}".rstrip())
    except KeyboardInterrupt:
        say("No longer followed; the run continues.")
        return
    say(f"{folder}: {quiet_summary(folder)['state']}")


def _lines(about: dict[str, Any]) -> dict[str, str]:
    # Where records are lost, what the intact ones say, and of how many rounds that is.
    known = about["known"] or about
    good = "" if about["known"] is None else f" the {counted(known['rounds'], 'round')} whose records are intact"
    of = good and f", in{good}"
    left, best = known["left_out"], known["best"]
    lines = {
        "run": about["run"],
        "state": about["state"] + ("" if about["stopped"] is None else f" early: {about['stopped']}"),
        "rounds": f"{about['round']} of {about['rounds']} ({_saved(about)})",
        **dict(line.rsplit(" ", 1) for line in scores(about)),
        "best": "–" if best is None else f"{_best(best)} in round {best['round']}{good and f', best of{good}'}",
        "digest": about["digest"] or "–",
    }
    if about["validation_accuracy"] is not None or about["validation_loss"] is not None:
        lines["validation"] = ", ".join(validated(about))
    if about["best_kept"] is not None:
        lines["best model"] = f"that of round {about['best_kept']} is kept: --which best of evaluate and export"
    without = counted(left["rounds_without_update"], "round")
    lines["left out"] = f"{counted(left['clients'], 'client')}, {without} without an update{of}"
    lines["time"] = f"{clock(known['seconds'])}{of}"
    lines["sent"] = f"{amount(known['bytes_down'])} down, {amount(known['bytes_up'])} up{of}"
    for kind, count in left["kinds"].items():
        lines[f"  {count}× {kind}"] = f"such as {left['examples'][kind]}"
    if about["diverged"] is not None:
        lines["diverged"] = ending(about["diverged"]).partition(": ")[2]
    if about["error"] is not None:
        lines["error"] = about["error"]
    if about["per_client_accuracy"] is not None:
        worst = percent(about["per_client_accuracy_worst_tenth"])
        lines["per client"] = (
            f"{percent(about['per_client_accuracy'])} on average; {worst} for the worst tenth of clients"
        )
    if about["per_client_accuracy_quantiles"] is not None:
        least, *_, middle, _, _, most = about["per_client_accuracy_quantiles"]
        lines["  clients"] = f"from {percent(least)} to {percent(most)}, half of them above {percent(middle)}"
    if about["groups"] is not None:
        sizes = [str(group["clients"]) for group in about["groups"]]
        lines["groups"] = f"{len(sizes)}, of {', '.join(sizes[:10])}{', …' if len(sizes) > 10 else ''} clients"
    if known["absent"]:
        lines["absent"] = f"{known['absent']} times a client did not answer, as simulated{of}"
    if known["simulated_seconds"] is not None:
        lines["simulated"] = f"{clock(known['simulated_seconds'])}{of}"
    lines |= _diagnosis(about.get("diagnosis", {}))
    if about["state"] == "interrupted":
        in_python = "python" in about["spec"]
        again = about["good_checkpoint"] is False  # there is none to continue from
        command = f"fedquilt resume {shlex.quote(about['run'])}{' --from-start' if again else ''}"
        lines["continue with"] = (
            f"fedquilt.train(…, out=…{', from_start=True' if again else ''})" if in_python else command
        )
    return lines


def validated(about: dict[str, Any]) -> list[str]:
    """Write accuracy and loss on the examples that are held out, where they are measured."""
    shown = {name: about[f"validation_{name}"] for name in ("accuracy", "loss")}
    return [f"{name} {figure(name, value)}" for name, value in shown.items() if value is not None]


def _saved(about: dict[str, Any]) -> str:
    if about["good_checkpoint"] is None:
        return "no checkpoint yet"
    if not about["good_checkpoint"]:
        return "no intact checkpoint is left"
    behind = "" if about["saved_round"] == about["round"] else "; the digest is of that round"
    return f"saved up to {about['saved_round']}{behind}"


def _best(best: dict[str, Any]) -> str:
    return percent(best["accuracy"]) if "accuracy" in best else f"loss {figure('loss', best['loss'])}"


_TERMS = {
    "agnostic": "G1, agnostic",
    "approximation": "G2, approximation",
    "federated": "G3, federated",
    "discrepancy": "feature distance",
    "trace_norm": "trace norm",
    "feature_norm": "feature norm",
    "skew": "S, weight skew",
    "rademacher": "Rademacher",
}


def _diagnosis(found: dict[str, Any]) -> dict[str, str]:
    lines = {}
    if "conflict_rate" in found:
        lines["conflicts"] = f"two clients' models differ on {percent(found['conflict_rate'])} of test examples"
        apart = found["divergence"]
        lines["divergence"] = (
            f"{_short(apart['distance'])} from the mean model ({_short(apart['relative'])} of its norm)"
        )
    for key, words in _TERMS.items():
        if key in found.get("excess_risk", {}):
            lines[words] = _short(found["excess_risk"][key])
    return lines


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
