"""Where the driver of a cluster saturates: rounds of 10, 100 and 1,000 nodes, simulated on measured constants.

    python bench/scaling.py                          # seconds; puts all tables into docs/scaling.md

Every node has 16 workers, and every worker is given its share of a cohort in four tasks. The driver is one queue: giving a
task, taking a sum over from the object store and folding it are done one after the other, and workers wait for it. What a
call, a put, a take-over and a fold cost was measured by `python bench/ray.py costs`, and is read from results/ray.json;
how long clients train, and how fast the network is, are assumed. With a tree, which is not built yet, every node hands out
tasks to its own workers and folds their sums, and the nodes' sums are folded 32 at a time.
"""

from __future__ import annotations

import heapq
import json
import math
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results" / "ray.json", HERE.parent / "docs" / "scaling.md"

Found = dict[str, Any]
"""What bench/ray.py has measured, by part, each with the conditions ("at") under which it was."""

ALLOWED = {"w1": 1.15, "w6": 1.25, "w2": 1.05}
"""The goals: `ray`'s CPU a round as a multiple of that of `processes`."""

SIZES = (200_000, 1_600_000, 10_000_000)
"""Parameters of models."""

WORKERS, TASKS = 16, 4
"""Workers of a node, and tasks of a worker in a round."""

FAN = 32
"""Sums that are folded at a time, in a tree."""

NETWORK = 1.25e9
"""Bytes a second into and out of the driver's node: 10 Gbit/s. Assumed."""


@dataclass(frozen=True)
class Round:
    """What a simulated round took, and how busy the driver was."""

    seconds: float
    busy: float
    ideal: float

    @property
    def efficiency(self) -> float:
        """The time that training alone would take, as a share of the round's."""
        return self.ideal / self.seconds


@dataclass(frozen=True)
class Work:
    """What clients train: parameters, seconds a client, and clients of a worker in a round."""

    parameters: int
    client_seconds: float
    clients: int


WORKS = tuple(Work(size, *work) for size, work in zip(SIZES, ((0.05, 20), (0.5, 10), (5.0, 4)), strict=True))


@dataclass(frozen=True)
class Costs:
    """Seconds of the driver's CPU: to give a task and hear of its end, to put a model, to take a sum over, to fold it."""

    call: float
    put: float
    take: float
    fold: float

    @classmethod
    def measured(cls, found: Found, size: int) -> Costs:
        """Return the costs for models of a size, as they were measured."""
        costs = found["costs"]
        return cls(costs["call"], *(costs[name][str(size)] for name in ("put", "take", "fold")))


def flat(work: Work, costs: Costs, lanes: int, network: float = NETWORK) -> Round:
    """Play a round through with one driver: an event is a task that ends at a worker, in the order of time."""
    rng, size = np.random.default_rng(0), work.parameters
    per_task = work.clients * work.client_seconds / TASKS
    answer = costs.call / 2 + costs.take + costs.fold + 8 * size / network
    now = busy = costs.put
    now += np.log2(lanes / WORKERS + 1) * 4 * size / network  # nodes pass the model on to each other
    ends: list[tuple[float, int, int]] = []
    for lane in range(lanes):
        now, busy = now + costs.call / 2, busy + costs.call / 2
        heapq.heappush(ends, (now + per_task * rng.uniform(0.8, 1.2), lane, 1))
    while ends:
        end, lane, number = heapq.heappop(ends)
        now, busy = max(now, end) + answer, busy + answer
        if number < TASKS:
            # Two tasks are queued at a worker: it goes on at once, unless the driver is a whole task behind.
            now, busy = now + costs.call / 2, busy + costs.call / 2
            begin = max(end, now - per_task)
            heapq.heappush(ends, (begin + per_task * rng.uniform(0.8, 1.2), lane, number + 1))
    return Round(now, busy / now, work.clients * work.client_seconds)


def tree(work: Work, costs: Costs, nodes: int) -> Round:
    """Every node hands out and folds for its own workers; above them, sums are folded by `FAN` at a time."""
    node = flat(work, costs, WORKERS, network=math.inf)
    above = costs.call + costs.take + costs.fold + 8 * work.parameters / NETWORK
    left, seconds = nodes, node.seconds
    while left > 1:
        seconds += min(left, FAN) * above
        left = math.ceil(left / FAN)
    return Round(seconds, 0.0, node.ideal)


def saturation(work: Work, costs: Costs) -> float:
    """Workers from which on a driver is busy all the time."""
    each = costs.call + costs.take + costs.fold + 8 * work.parameters / NETWORK
    return work.clients * work.client_seconds / (TASKS * each)


# What docs/scaling.md has of it


def conditions(found: Found, *parts: str) -> str:
    """Say under which conditions parts were measured, those that were measured together in one line."""
    lines: dict[str, list[str]] = {}
    for part in parts:
        if part in found:
            at = found[part]["at"]
            lines.setdefault(f"`{at['command']}`, commit {at['commit']}, {at['when']}; {at['machine']}", []).append(
                part
            )
    return "\n".join(f"- {', '.join(names)}: {line}" for line, names in lines.items())


def beside(found: Found) -> str:
    """Compare with `processes`."""
    lines = ["| workload | `processes` | `ray` | multiple | goal | of it, daemons |", "|---" * 6 + "|"]
    for name, goal in ALLOWED.items():
        row = found.get(name)
        if row is None:
            lines.append(f"| {name.upper()} | not measured yet | | | {goal:g} | |")
            continue
        verdict = f"{goal:g}, {'reached' if row['ratio'] <= goal else '**not reached**'}"
        cpu = f"{row['processes']:.3f} s | {row['ray']:.3f} s | {row['ratio']:.3f} | {verdict} | {row['daemons']:.3f} s"
        lines.append(f"| {name.upper()}: {row['about']} | {cpu} |")
    lines += ["", conditions(found, *ALLOWED, "memory")]
    if "memory" in found:
        memory = found["memory"]
        said = (
            f"A worker has {memory['ray']:.0f} MiB to itself, with `processes` {memory['processes']:.0f} MiB: forked "
            "workers share PyTorch with their parent, actors import it. The data are in neither figure: with `ray`, they "
            f"lie in the object store once, {memory['data']:.0f} MiB."
        )
        lines += ["", textwrap.fill(said, 124)]
    return "\n".join(lines)


def costs_table(found: Found) -> str:
    """Show what a task, a put and a fold cost the driver."""
    each = [Costs.measured(found, size) for size in SIZES]
    rows = {
        "to give a task and hear of its end": [cost.call for cost in each],
        "to put a model into the object store, once per round": [cost.put for cost in each],
        "to take a partial sum over from the store": [cost.take for cost in each],
        "to fold it": [cost.fold for cost in each],
    }
    lines = [f"| | {SIZES[0]:,} parameters | " + " | ".join(f"{size:,}" for size in SIZES[1:]) + " |", "|---" * 4 + "|"]
    lines += [
        f"| {name} | " + " | ".join(f"{1e3 * value:.1f} ms" for value in row) + " |" for name, row in rows.items()
    ]
    return "\n".join([*lines, "", conditions(found, "costs")])


def traffic_table(found: Found) -> str:
    """Show what goes through the driver, by the size of the cohort."""
    columns = ("clients a round", "out, single updates", "back", "out, partial sums", "back")
    lines = [f"| {' | '.join(columns)} |", "|---" * 5 + "|"]
    for cohort, row in found["traffic"]["cohorts"].items():
        sizes = (*row["single updates"], *row["partial sums"])
        lines.append(f"| {int(cohort):,} | " + " | ".join(f"{size / 2**20:.1f} MiB" for size in sizes) + " |")
    return "\n".join([*lines, "", conditions(found, "traffic")])


def saturation_table(found: Found) -> str:
    """Show where the driver saturates."""
    lines, nodes = ["| parameters | workers | clients a second |", "|---" * 3 + "|"], []
    for work in WORKS:
        workers = saturation(work, Costs.measured(found, work.parameters))
        nodes.append(workers / WORKERS)
        lines.append(f"| {work.parameters:,} | {workers:,.0f} | {workers / work.client_seconds:,.0f} |")
    few, many = min(nodes), max(nodes)
    return "\n".join(
        [*lines, "", f"So one driver feeds {few:.1f} to {many:.1f} nodes of {WORKERS} workers with such work."]
    )


def nodes_table(found: Found) -> str:
    """Show rounds of 10, 100 and 1,000 nodes, simulated."""
    columns = ("parameters", "a client trains", "clients a worker", "nodes", "round, one driver", "driver busy")
    lines = ["| " + " | ".join((*columns, "efficiency", "round, tree", "efficiency")) + " |", "|---" * 9 + "|"]
    for work in WORKS:
        costs = Costs.measured(found, work.parameters)
        for nodes in (10, 100, 1000):
            one, many = flat(work, costs, nodes * WORKERS), tree(work, costs, nodes)
            about = f"{work.parameters:,} | {work.client_seconds:g} s | {work.clients} | {nodes:,}"
            lines.append(
                f"| {about} | {one.seconds:.1f} s | {one.busy:.0%} | {one.efficiency:.0%} | {many.seconds:.1f} s | "
                f"{many.efficiency:.0%} |"
            )
    return "\n".join(lines)


TABLES = {
    "beside": beside,
    "costs": costs_table,
    "traffic": traffic_table,
    "saturation": saturation_table,
    "nodes": nodes_table,
}


def written(text: str, found: Found) -> str:
    """Return the page's text with its tables put in, each between its marks."""
    for name, table in TABLES.items():
        marks = re.compile(rf"(<!-- {name}: written by bench/scaling.py -->\n).*?(<!-- {name} ends -->)", re.DOTALL)
        text, count = marks.subn(lambda match, table=table: f"{match[1]}\n{table(found)}\n\n{match[2]}", text)
        assert count == 1, f"the page has no place for the table {name}"
    return text


def publish(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Put what was measured, and what follows from it, into the page."""
    page.write_text(written(page.read_text(), json.loads(results.read_text())))


if __name__ == "__main__":
    publish()
