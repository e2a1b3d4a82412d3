"""The command line. Everything it does is callable.

`fedquilt.run`, `resume`, `sweep`, `report`, `summary`, `inspect_partition`.
What needs PyTorch is imported by the commands: help comes at once, and Ctrl-C during the import is handled as any other.

Exit codes: 0 done; 1 the run failed; 2 wrong usage, spec or folder; 130 interrupted (and can be resumed).
"""

from __future__ import annotations

import shlex
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table
from typer.core import TyperGroup

import fedquilt
from fedquilt import registry
from fedquilt.commands import data
from fedquilt.commands.evaluate import evaluate
from fedquilt.commands.export import export
from fedquilt.commands.options import NoImport, Sets, Unsets
from fedquilt.commands.partition import partition
from fedquilt.console import console
from fedquilt.errors import DataError, FedquiltError, RunError, SpecError
from fedquilt.metrics.divergence import HINT
from fedquilt.progress import Lines, Live, amount, clock, counted, figure, percent, scores, watcher
from fedquilt.text import visible

if TYPE_CHECKING:
    from fedquilt.experiment.run import Run

FAILED, WRONG, INTERRUPTED = 1, 2, 130

UNTOUCHED = {
    "run": "Interrupted before training began: nothing was started, and nothing saved.",
    "resume": "Interrupted before training went on: the run is as it was.",
    "sweep": "Interrupted before any training began: nothing was started, and nothing saved.",
}
"""What Ctrl-C has left of a command that had not come to training, which saves by itself what is done."""


class Commands(TyperGroup):
    """Commands that say what an interruption has left; by themselves, Typer's end without a word."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            err.print(UNTOUCHED.get(ctx.invoked_subcommand or "", "Interrupted."))
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    help="Federated learning for data that differs from owner to owner.",
    epilog="Start with: fedquilt new first.toml, then: fedquilt run first.toml",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
out = console()
err = console(stderr=True)

Out = Annotated[
    Path | None, typer.Option("--out", file_okay=False, help="The folder to write to (default: runs/NAME).")
]


class Kind(StrEnum):
    """What `list` lists."""

    methods = "methods"
    wrappers = "wrappers"
    simulations = "simulations"
    models = "models"
    datasets = "datasets"
    partitions = "partitions"
    engines = "engines"
    losses = "losses"
    metrics = "metrics"


def _version(asked: bool) -> None:
    if asked:
        print(fedquilt.__version__)
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Federated learning for data that differs from owner to owner."""


@app.command(epilog="Example: fedquilt run first.toml --set method.lr=0.05 --out runs/slow")
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
    _closing(ended)


@app.command(epilog="Example: fedquilt resume runs/first")
def resume(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    rounds: Annotated[int | None, typer.Option(help="Run up to this many rounds instead.")] = None,
    no_import: NoImport = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Train again from the first round; what is there is set aside.")
    ] = False,
) -> None:
    """Go on with a run that was interrupted, from its newest good checkpoint."""
    from fedquilt.experiment.summary import quiet_summary

    before = quiet_summary(run_folder)
    finished = before["state"] in ("finished", "diverged") and (rounds is None or rounds <= before["round"])
    finished = finished and not from_start
    display = None if finished else watcher(out, run_folder.name)
    try:
        # A finished run is opened all the same: a crash may have kept it from drawing its plots.
        ended = fedquilt.resume(run_folder, rounds, display, from_start)
    finally:
        if display is not None:
            display.close()
    if before["state"] == "diverged" and len(ended.result.history) == before["round"]:
        _say("The run had diverged already, and stays as it is: change its spec and run that anew.")
    elif finished:
        ends = before["rounds"] < before["spec"].get("run", {}).get("rounds", 0)
        longer = "; --rounds makes it longer" if before["round"] >= before["rounds"] else ""
        longer = f"; its method ends by itself after round {before['rounds']}" if ends else longer
        _say(f"The run was finished already: nothing to do{longer}.")
    _closing(ended)


@app.command(epilog="Example: fedquilt show runs/first --json | jq .digest")
def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Also train the next round's clients and measure why they disagree.")
    ] = False,
    no_import: NoImport = False,
) -> None:
    """Show a run: state, rounds, accuracy, best, digest of the model, what was left out."""
    from fedquilt.experiment.summary import as_json

    about = fedquilt.summary(run_folder)
    if diagnose:
        from fedquilt.experiment.diagnosis import diagnose_run

        about["diagnosis"] = diagnose_run(run_folder)
    if json:
        print(as_json(about))  # plain print: Rich would wrap long lines
        return
    table = Table(Column(no_wrap=True), Column(overflow="fold"), show_header=False, box=None, padding=(0, 2, 0, 0))
    lines = _lines(about)
    unbroken = {name: lines.pop(name) for name in ("error", "go on with") if name in lines}
    for name, text in lines.items():
        table.add_row(f"[bold]{escape(name)}[/bold]", escape(text))
    out.print(table)
    for name, text in unbroken.items():  # a table would break a command into lines that cannot be copied
        _say(f"{name}: {text}")


@app.command(name="list", epilog="Example: fedquilt list methods")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List what a spec can name."""
    lists: dict[str, registry.Registry] = {kind.value: getattr(registry, kind.value)}
    if kind is Kind.methods:  # what changes a method is a method to whoever looks for one
        lists = {"[method]": registry.methods, "[[wrap]]": registry.wrappers, "[[simulate]]": registry.simulations}
    for title, chosen in lists.items():
        if not out.is_terminal:
            where = f"\t{title}" if len(lists) > 1 else ""
            for name in chosen:
                print(f"{name}\t{chosen.summary(name)}{where}")
            continue
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        if len(lists) > 1:
            table.title, table.title_justify = f"for {escape(title)}", "left"
        for name in chosen:
            table.add_row(f"[bold]{name}[/bold]", escape(chosen.summary(name)))
        out.print(table)


@app.command(epilog="Example: fedquilt new first.toml")
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
    _say(f"Wrote {path}. Run it with: fedquilt run {shlex.quote(str(path))}")


@app.command(epilog="Example: fedquilt sweep experiments/mcmahan-2017/table-1-iid-b10.toml")
def sweep(
    spec: Annotated[Path, typer.Argument(help="A spec file with a \\[sweep] table.")],
    sets: Sets = None,
    unsets: Unsets = None,
    folder: Out = None,
    no_import: NoImport = False,
) -> None:
    """Run a spec over a grid of values; finished points are kept, interrupted ones go on."""
    checked = fedquilt.load_spec(spec, sets or (), unsets or ())
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
    table = Table(Column("point", overflow="fold"), best, f"rounds to {target}", title=spec.stem, title_justify="left")
    for point in done.points:
        crossed = "–" if point.rounds_to_target is None else f"{point.rounds_to_target:.1f}"
        score = figure("loss", point.loss) if by_loss else percent(point.best)
        score += " (diverged)" if point.diverged else ""
        table.add_row(escape(point.name), score, crossed, style="bold" if point is done.winner else "")
    out.print(table)
    if done.winner is not None and done.reached is False:
        nearest = f"loss {figure('loss', done.winner.loss)}" if by_loss else percent(done.winner.best)
        _say(f"No point reached {target}; the nearest: {done.winner.name}, with {nearest}")
    elif done.winner is not None:
        _say(f"best: {done.winner.name}")
    for where, value in done.published.items():
        _say(f"published, {where}: {value}")
    _say(f"Results: {done.results}")
    if done.interrupted:
        again = ["fedquilt", "sweep", str(spec), *(word for change in sets or () for word in ("--set", change))]
        again += [word for key in unsets or () for word in ("--unset", key)] + ["--no-import"] * no_import
        _say(f"Interrupted. Go on with: {shlex.join([*again, '--out', str(folder)] if folder else again)}")
        raise typer.Exit(INTERRUPTED)
    if all(point.diverged for point in done.points):
        _complain(f"every point diverged. {HINT}.")
        raise typer.Exit(FAILED)


@app.command(epilog="Example: fedquilt report runs/a runs/b --out runs/report")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    folder: Annotated[
        Path, typer.Option("--out", file_okay=False, help="Where to save the table and the plot.")
    ] = Path("runs/report"),
    target: Annotated[float | None, typer.Option(help="Target accuracy (default: 95% of the best).")] = None,
) -> None:
    """Compare runs in a table and a plot."""
    from fedquilt.experiment.report import HEADER

    # A sweep's folder holds its results beside the runs: `runs/grid/*` may name that file too.
    done = fedquilt.report([path for path in runs if not path.is_file()] or runs, folder, target)
    own = HEADER.index("own data")
    columns = {"last accuracy": "last", "mean of last 10": "mean of last 10", "best accuracy": "best"}
    columns |= {"own data": "own data"} if any(row[own] != "–" for row in done.rows) else {}
    if any(row[HEADER.index("last accuracy")] == "–" != row[HEADER.index("last loss")] for row in done.rows):
        columns |= {"last loss": "last loss"}
    columns |= {name: name for name in ("other metrics",) if any(row[HEADER.index(name)] != "–" for row in done.rows)}
    columns |= {"state": "state"} if any(row[HEADER.index("state")] != "finished" for row in done.rows) else {}
    columns |= {"rounds to target": f"rounds to {percent(done.target) if done.target else 'target'}"}
    table = Table(Column("run", no_wrap=True), *columns.values())
    for row in done.rows:
        table.add_row(escape(row[0]), *(escape(row[HEADER.index(name)]) for name in columns))
    out.print(table)
    for text in done.damage:
        _show_warning(text)
    for file in done.files:
        _say(f"Wrote {file}")


app.command(epilog="Example: fedquilt evaluate runs/first --data mnist")(evaluate)
app.command(epilog="Example: fedquilt export runs/first model.safetensors")(export)
app.command(epilog="Example: fedquilt partition first.toml --set partition.alpha=0.1")(partition)


def main() -> None:
    """Run the command line; print errors that a user can act on as one message, without a traceback."""
    warnings.showwarning = _show_warning
    try:
        app()
    except KeyboardInterrupt:
        err.print("Interrupted.")
        sys.exit(INTERRUPTED)
    except Exception as error:
        message = message_of(error)
        if message is None:
            raise
        _complain(message)
        named = isinstance(error, OSError) and error.filename
        sys.exit(WRONG if named or isinstance(error, SpecError | RunError | DataError) else FAILED)


def message_of(error: BaseException) -> str | None:
    """Return what the command line says of an error that a user can act on; None of others, which are faults of ours."""
    if isinstance(error, OSError) and error.filename:
        return visible(f"{error.filename}: {error.strerror}")
    return visible(str(error), keep="\n") if isinstance(error, FedquiltError | OSError) else None


def _say(text: str) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def _complain(error: Exception | str) -> None:
    err.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    err.print(f"warning: {message}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _closing(ended: Run) -> None:
    result, path = ended.result, ended.folder
    if result.interrupted:
        when = f"after round {result.run.round}" if result.run.round else "before the first round was done"
        _say(f"Interrupted {when}; nothing is lost.")
        _say(f"Go on with: fedquilt resume {shlex.quote(str(path))}")
        raise typer.Exit(INTERRUPTED)
    history = result.history
    best, lowest = (history.best, history.lowest) if history.whole else (None, None)  # else they are not known
    done = result.run.round
    own = next((r["own_accuracy"] for r in reversed(result.history.records) if r.get("own_accuracy")), None)
    words = f"{'Finished' if result.diverged is None else 'Ended after'} {counted(done, 'round')}: "
    first, *others = scores(history.newest or {"accuracy": None, "loss": None})
    if best:
        first += f", best {percent(best[1])} in round {best[0]}"
    elif lowest:
        first += f", lowest {figure('loss', lowest[1])} in round {lowest[0]}"
    words += ", ".join([first, *others])
    _say(words + (f"; on clients' own data {percent(own)}" if own is not None else ""))
    _say(f"Model SHA-256: {result.digest}")
    for name in ("", "curve.png", "clients.png", "own.png"):
        if (path / name).exists():
            _say(f"{'Run folder' if not name else 'Plot'}: {path / name}")
    if result.diverged is not None:
        _complain(f"the run diverged: {result.diverged}. {HINT}.")
        raise typer.Exit(FAILED)
    if not any(record["applied"] for record in result.history):
        _complain(
            f"no round changed the model: every client was left out; see `fedquilt show {shlex.quote(str(path))}`"
        )
        raise typer.Exit(FAILED)


def _lines(about: dict[str, Any]) -> dict[str, str]:
    left, best = about["left_out"], about["best"]
    behind = "" if about["saved_round"] == about["round"] else f" (of round {about['saved_round']})"
    lines = {
        "run": about["run"],
        "state": about["state"],
        "rounds": f"{about['round']} of {about['rounds']} (saved up to {about['saved_round']})",
        **dict(line.rsplit(" ", 1) for line in scores(about)),
        "best": "–" if best is None else f"{_best(best)} in round {best['round']}",
        "digest": f"{about['digest'] or '–'}" + behind,
    }
    if about["lost_rounds"]:
        lines |= dict.fromkeys(("best", "left out", "time", "sent"), "not known, since records are lost")
    else:
        without = counted(left["rounds_without_update"], "round")
        lines["left out"] = f"{counted(left['clients'], 'client')}, {without} without an update"
        lines["time"] = clock(about["seconds"])
        lines["sent"] = f"{amount(about['bytes_down'])} down, {amount(about['bytes_up'])} up"
    for kind, count in left["kinds"].items():
        lines[f"  {count}× {kind}"] = f"such as {left['examples'][kind]}"
    if about["diverged"] is not None:
        lines["diverged"] = f"{about['diverged']}. {HINT}."
    if about["error"] is not None:
        lines["error"] = about["error"]
    if about["own_accuracy"] is not None:
        worst = percent(about["own_accuracy_worst_tenth"])
        lines["own data"] = f"{percent(about['own_accuracy'])} on clients' own data; {worst} at the worst tenth of them"
    if about["own_accuracy_quantiles"] is not None:
        least, *_, middle, _, _, most = about["own_accuracy_quantiles"]
        lines["  clients"] = f"from {percent(least)} to {percent(most)}, half of them above {percent(middle)}"
    if about["groups"] is not None:
        sizes = [str(group["clients"]) for group in about["groups"]]
        lines["groups"] = f"{len(sizes)}, of {', '.join(sizes[:10])}{', …' if len(sizes) > 10 else ''} clients"
    if about["absent"]:
        lines["absent"] = f"{about['absent']} times a client did not answer, as simulated"
    if about["simulated_seconds"] is not None:
        lines["simulated"] = clock(about["simulated_seconds"])
    lines |= _diagnosis(about.get("diagnosis", {}))
    if about["state"] == "interrupted":
        own = "python" in about["spec"]
        lines["go on with"] = f"fedquilt resume {shlex.quote(about['run'])}" if not own else "fedquilt.train(…, out=…)"
    return lines


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
