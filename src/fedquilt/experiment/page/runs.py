"""The part of the page that compares runs, one row each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from fedquilt.base.text import counted, figure, percent
from fedquilt.experiment.contents import Contents
from fedquilt.experiment.page.part import Part, RunGroup, detail_of, run_figures
from fedquilt.experiment.page.skewness import Reached, figure_of_skew
from fedquilt.experiment.page.source import ReadRun, labels_of
from fedquilt.experiment.page.table import TextTable

HEADER = (
    "run",
    "method",
    "partition",
    "rounds",
    "state",
    "last accuracy",
    "mean of last 10",
    "best accuracy",
    "per client",
    "rounds to target",
    "MB sent",
    "last loss",
    "other metrics",
)


def part_of_runs(runs: Sequence[ReadRun], target: float | None) -> tuple[Part, float | None]:
    """Compare runs; `target` is an accuracy, or 95% of the best that any of the runs reached."""
    names = labels_of([run.path for run in runs])
    known = [run.found for run in runs if run.found is not None]
    best = max((found.history.best[1] for found in known if found.history.best), default=0.0)
    goal = target if target is not None else round(0.95 * best, 3) or None
    rows = tuple(_row(name, run, goal) for name, run in zip(names, runs, strict=True))
    table = TextTable("runs", "Runs", HEADER, rows, f"Target accuracy: {percent(goal)}.")
    groups = [RunGroup(name, (run,)) for name, run in zip(names, runs, strict=True)]
    figures = run_figures(groups, goal)
    skewed = _skew(groups)
    if skewed is not None:
        figures.insert(1, skewed)
    part = Part(
        title="Comparison of runs" if len(runs) > 1 else names[0],
        lead=_lead(names, runs),
        tables=(table,),
        figures=tuple(figures),
        details=tuple(detail_of(name, run) for name, run in zip(names, runs, strict=True)),
        notes=tuple(text for run in runs for text in (run.found.damage if run.found else (run.problem or "",))),
    )
    return part, goal


def method_of(spec: dict[str, Any]) -> str:
    """Name a method with its wrappers and simulations.

    >>> method_of({"method": {"name": "fed_avg"}, "wrap": [{"name": "ditto"}]})
    'fed_avg + ditto'
    """
    tables = [spec.get("method", {}), *spec.get("wrap", []), *spec.get("simulate", [])]
    return " + ".join(str(table.get("name", "own")) for table in tables)


def _row(name: str, run: ReadRun, goal: float | None) -> tuple[str, ...]:
    if run.found is None or run.about is None:
        return (name, *("–",) * 3, "cannot be read", *("–",) * (len(HEADER) - 5))
    found, about = run.found, run.about
    history, known = found.history, about["known"] or about
    least = "≥ " if found.lost else ""  # rounds whose records are lost may have been better, and sent more
    late = history.accuracy[-10:]
    unknown = found.lost_since((history.rounds[-10:] or [0])[0])
    return (
        name,
        method_of(about["spec"]),
        _partition(about["spec"].get("partition", {})),
        str(about["round"]),
        about["state"],
        percent(about["accuracy"]),
        "–" if unknown or not late else percent(statistics.fmean(late)),
        f"{least}{percent(history.best[1])}" if history.best else "–",
        percent(about["per_client_accuracy"]),
        _reached(found, goal or 0.0),
        f"{least}{(known['bytes_down'] + known['bytes_up']) / 1e6:.1f}",
        figure("loss", about["loss"]),
        ", ".join(f"{name} {figure(name, value)}" for name, value in about["metrics"].items()) or "–",
    )


def _reached(found: Contents, goal: float) -> str:
    """Write the rounds to the target: at most so many where a record before it is lost."""
    crossed = found.history.rounds_to(goal)
    if crossed is None:
        return "–" if found.lost else "not reached"
    return f"≤ {crossed:.1f}" if any(rounds.start < crossed for rounds in found.lost) else f"{crossed:.1f}"


def _partition(table: dict[str, object]) -> str:
    details = [f"{key}={table[key]}" for key in ("alpha", "shards") if key in table]
    return " ".join([str(table.get("name", "own")), *details])


def _lead(names: Sequence[str], runs: Sequence[ReadRun]) -> str:
    """Say in a sentence what came out."""
    states = [run.about["state"] if run.about else "unreadable" for run in runs]
    ended = sum(state in ("finished", "diverged") for state in states)
    far = (
        f"{counted(len(runs), 'run')}, {ended} of them at their end."
        if ended < len(runs)
        else f"{counted(len(runs), 'run')}."
    )
    known = [(name, run.found.history) for name, run in zip(names, runs, strict=True) if run.found is not None]
    best = [(history.best, name) for name, history in known if history.best is not None]
    if best:
        (round_, value), name = max(best, key=lambda each: each[0][1])
        return f"{far} The best test accuracy is {percent(value)}, of {name} in round {round_:,}."
    lowest = [(history.lowest, name) for name, history in known if history.lowest is not None]
    if lowest:
        (round_, value), name = min(lowest, key=lambda each: each[0][1])
        return f"{far} The lowest test loss is {figure('loss', value)}, of {name} in round {round_:,}."
    return f"{far} None has been evaluated yet."


def _skew(groups: Sequence[RunGroup]) -> Any:
    """Draw the best accuracies over the EMD of the populations, if there are several."""
    points = []
    for group in groups:
        for found in group.found:
            if found.holdings is not None and found.holdings.emd is not None and found.history.best:
                method = method_of(found.tables) if "method" in found.tables else group.name
                value = round(100 * found.history.best[1], 3)
                points.append(Reached(method, found.holdings.emd, value, None, group.name))
    if len({round(point.emd, 3) for point in points}) < 2:
        return None
    return figure_of_skew(points, "best test accuracy (%)")
