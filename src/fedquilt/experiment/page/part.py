"""A part of the page: what is said of some runs, or of an experiment, in words, tables and figures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedquilt.base.text import counted, percent
from fedquilt.experiment.contents import Contents
from fedquilt.experiment.holdings import Holdings
from fedquilt.experiment.page.client_accuracies import figure_of_client_accuracies
from fedquilt.experiment.page.clients import figure_of_clients
from fedquilt.experiment.page.cost import figure_of_cost
from fedquilt.experiment.page.curves import Line, drawable, figure_of_curves
from fedquilt.experiment.page.figure import Figure
from fedquilt.experiment.page.source import ReadRun
from fedquilt.experiment.page.table import TextTable
from fedquilt.experiment.results.table import ResultTable


@dataclass(frozen=True)
class Detail:
    """What it takes to make a run again, and to see that it is the same; or a cell, with those of its runs."""

    name: str
    facts: dict[str, str]
    command: str
    spec: str
    runs: tuple[Detail, ...] = ()


@dataclass(frozen=True)
class Part:
    """What the page shows of some runs, or of an experiment.

    `result` is the table in the shape of a paper's; `files` are texts to write, by name, besides the `tables`.
    """

    title: str
    lead: str
    facts: tuple[str, ...] = ()
    result: ResultTable | None = None
    tables: tuple[TextTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    details: tuple[Detail, ...] = ()
    notes: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunGroup:
    """Runs that are repeats of each other, under one name."""

    name: str
    runs: tuple[ReadRun, ...]

    @property
    def found(self) -> list[Contents]:
        """What was read of the runs that could be read."""
        return [run.found for run in self.runs if run.found is not None]


def run_figures(
    groups: Sequence[RunGroup], target: float | None = None, over: str = "round", monotonic: bool = False
) -> list[Figure]:
    """Draw all that the runs allow: curves, who holds what, accuracies client by client, what it cost.

    Curves are drawn `over` rounds or what was spent; with `monotonic`, they show the best accuracy so far.
    """
    lines = [
        Line(group.name, tuple(found.history for found in group.found), monotonic) for group in groups if group.found
    ]
    figures = [figure_of_curves(lines, target, over)]
    populations = populations_of(groups)
    if populations:
        figures.append(figure_of_clients(populations))
    client_accuracies = {
        group.name: [accuracy for found in group.found for accuracy in found.client_accuracies or ()]
        for group in groups
    }
    client_accuracies = {name: each for name, each in client_accuracies.items() if each}
    if client_accuracies:
        figures.append(figure_of_client_accuracies(client_accuracies))
    costs = {group.name: [cost for found in group.found if (cost := _cost(found))] for group in groups}
    costs = {name: each for name, each in costs.items() if each}
    if costs:
        figures.append(figure_of_cost(costs))
    return [figure for figure in figures if figure.charts]


def populations_of(groups: Sequence[RunGroup], most: int = 12) -> dict[str, Holdings]:
    """Return the populations that the runs were trained on, each once, named for what they differ in."""
    found: dict[str, tuple[Holdings, str, dict[str, Any]]] = {}
    for group in groups:
        for contents in group.found:
            if contents.holdings is not None:
                about = {"data": contents.tables.get("data", {}).get("name"), **contents.tables.get("partition", {})}
                about["run seed"] = contents.tables.get("run", {}).get("seed")  # which examples validation holds out
                found.setdefault(contents.holdings.to_json(), (contents.holdings, group.name, about))
    tables = [about for _, _, about in found.values()]
    differ = [
        key
        for key in dict.fromkeys(key for table in tables for key in table)
        if len({str(t.get(key)) for t in tables}) > 1
    ]
    if len({tuple(str(table.get(key)) for key in differ if key != "run seed") for table in tables}) == len(tables):
        differ = [key for key in differ if key != "run seed"]
    named: dict[str, Holdings] = {}
    for held, name, about in list(found.values())[:most]:
        words = ", ".join(f"{key} {about[key]}" for key in differ if about.get(key) is not None)
        label = words if words and words not in named else name
        named[label if label not in named else f"{label} ({len(named) + 1})"] = held
    return named


def _cost(found: Contents) -> dict[str, float]:
    records = found.history.records
    if not records or found.lost:
        return {}
    spent = {
        "megabytes": sum(record["bytes_up"] + record["bytes_down"] for record in records) / 1e6,
        "seconds": sum(record["seconds"] for record in records),
    }
    steps = sum(record.get("steps", 0) for record in records)
    return {kind: float(value) for kind, value in (spent | {"steps": steps}).items() if value and drawable(value)}


def detail_of(name: str, run: ReadRun, command: str | None = None) -> Detail:
    """Say how a run was made."""
    if run.found is None or run.about is None:
        return Detail(name, {"problem": run.problem or ""}, command or "", "")
    made, about = run.found.environment or {}, run.about
    tables = run.found.tables
    facts = {
        "state": _state(about),
        "accuracy": percent(about["accuracy"]),
        "seed": str(tables.get("run", {}).get("seed", "–")),
        "population seed": str(tables.get("partition", {}).get("seed", "–")),
        "commit": str(made.get("commit") or "not known"),
        "model SHA-256": about["digest"] or "–",
        "machine": machine(made),
        "software": software(made),
        "folder": str(run.path),
    }
    return Detail(name, facts, command or command_of(run), spec_text(run.path))


def command_of(run: ReadRun) -> str:
    """Return the command that makes a run again."""
    if run.found is not None and "python" in run.found.tables:
        return "fedquilt.train(…) from Python: its model and data are not in the run folder"
    return f"fedquilt run {shlex.quote(str(run.path / 'spec.toml'))}"


def spec_text(path: Path) -> str:
    """Return the resolved spec of a run folder, without the line that has its check."""
    text = (path / "spec.toml").read_text(encoding="utf-8", errors="replace")
    return "\n".join(line for line in text.splitlines() if not line.startswith("# check: ")).strip()


def _state(about: dict[str, Any]) -> str:
    return f"{about['state']}, {about['round']} of {about['rounds']} rounds"


def machine(made: dict[str, Any]) -> str:
    """Describe the machine of a run."""
    parts = [made.get("processor"), counted(made["cores"], "core") if isinstance(made.get("cores"), int) else None]
    parts += [
        f"{made['memory_gib']} GiB" if made.get("memory_gib") else None,
        made.get("system"),
        made.get("instruction_set"),
    ]
    return ", ".join(str(part) for part in parts if part) or "not known"


def software(made: dict[str, Any]) -> str:
    """Describe the software of a run."""
    packages = made.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    names = {"fedquilt": made.get("fedquilt"), "Python": made.get("python"), **packages}
    return ", ".join(f"{name} {version}" for name, version in names.items() if version) or "not known"
