"""Ranks the methods of fedquilt's benchmark, and says what they cost beside FedAvg.

A rank is the place of a method in a column of the table, 1 for the best; those of the columns where every method has a
value are averaged. A method's cost are the rounds, bytes and seconds until its accuracy is 95% of FedAvg's best on the same
clients with the same seed, divided by what FedAvg takes itself: the geometric mean over the runs that get there. Seconds
are those of the simulation.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedquilt.analysis.curves import History
from fedquilt.base.text import counted
from fedquilt.experiment.design.metric import COSTS, CellMetric
from fedquilt.experiment.results.cells import Cell
from fedquilt.experiment.results.measured import measure

PLAIN = "FedAvg"
NEAR = 0.95
"""The share of FedAvg's best accuracy at which costs are compared."""

KINDS = ("rounds_to", "bytes_to", "seconds_to")


def ranking(cells: Sequence[Cell], method: int, setting: int, histories: Mapping[str, History]) -> str:
    """Write ranks and costs as a table, the best first; `method` and `setting` say where in a cell's key they stand."""
    columns: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        columns.setdefault(cell.key[setting], {})[cell.key[method]] = cell
    whole = [each for each in columns.values() if all(cell.value is not None for cell in each.values())]
    if not whole or PLAIN not in whole[0]:
        return ""
    places = [_places({name: cell.value or 0.0 for name, cell in each.items()}) for each in whole]
    ranks = {name: statistics.fmean(each[name] for each in places) for name in places[0]}
    lines = [
        "| method | mean rank | "
        + " | ".join(f"{COSTS[kind]}, times {PLAIN}'s" for kind in KINDS)
        + " | gets there in |",
        "| --- |" + " ---: |" * (len(KINDS) + 2),
    ]
    for name in sorted(ranks, key=lambda name: ranks[name]):
        costs = [list(_costs(name, kind, columns.values(), histories)) for kind in KINDS]
        there = [[cost for cost in each if cost is not None] for each in costs]
        shown = [f"{statistics.geometric_mean(each):.2f}" if each else "–" for each in there]
        reached = f"{len(there[0])} of {counted(len(costs[0]), 'run')}"
        lines.append(f"| {name} | {ranks[name]:.1f} | {' | '.join(shown)} | {reached} |")
    left_out = [name for name, each in columns.items() if each not in whole]
    about = [
        f"Mean ranks: over {len(whole)} of {counted(len(columns), 'column')}"
        + (f", without {', '.join(left_out)}, which are not complete." if left_out else "."),
        f"Costs: until {100 * NEAR:.0f}% of {PLAIN}'s best accuracy with the same seed; geometric means over the runs that "
        "get there.",
    ]
    return "\n".join(["**Ranks and costs**", "", *lines, "", "  \n".join(about), ""])


def _places(values: Mapping[str, float]) -> dict[str, float]:
    """Return the place of each value, the largest first; those that are equal share the mean of their places.

    >>> _places({"a": 0.5, "b": 0.9, "c": 0.5})
    {'a': 2.5, 'b': 1.0, 'c': 2.5}
    """
    ordered = sorted(values.values(), reverse=True)
    return {name: ordered.index(value) + (ordered.count(value) + 1) / 2 for name, value in values.items()}


def _costs(
    name: str, kind: str, columns: Iterable[Mapping[str, Cell]], histories: Mapping[str, History]
) -> Iterator[float | None]:
    """Divide what a method spends by what FedAvg does, for every column and seed; None: it does not get there."""
    for column in columns:
        seeds = {str(trial.repeated): histories.get(trial.name) for trial in column[PLAIN].trials}
        for trial in column[name].trials:
            own, plain = histories.get(trial.name), seeds.get(str(trial.repeated))
            if own is not None and plain is not None:
                target = NEAR * (measure(CellMetric("", "best"), plain).value or 0.0)
                spent, base = (_spent(kind, target, each) for each in (own, plain))
                yield None if spent is None or not base else spent / base


def _spent(kind: str, target: float, history: History) -> float | None:
    found = measure(CellMetric("", kind, target=target, along=COSTS[kind]), history)
    return None if found.beyond else found.value
