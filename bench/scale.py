"""How the cost of a round grows with the population, the cohort and the number of rounds.

    python bench/scale.py population       # 1,000 to 1,000,000 clients, the same cohort
    python bench/scale.py cohort           # 10 to 10,000 clients per round
    python bench/scale.py rounds           # memory over 5,000 rounds of W3

Each prints its figures and saves a plot in `runs/bench/`. Softmax regression on 100 features; clients of 20 examples (one
example may belong to several clients, so that the data stay the same size). In `population` the sizes take turns, round by
round, because a shared machine's speed changes over time. The engine is the one that a run gets that names none; with
`--engine eager`, clients take eager steps one by one, and what does not belong to a client weighs less.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import altair as alt
import numpy as np
import psutil
import torch
from torch import nn
from workloads import WORKLOADS, numbers

import fedquilt
from fedquilt.data.data import Data
from fedquilt.experiment.page.figure import styled, write_spec
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures
from fedquilt.round.session import Session, settled

SIZE = 20
EXAMPLES = 100_000
EVERY = Measures(every=10**9)


def partition(clients: int) -> Partition:
    """Let every client hold some examples, over and over again."""
    rows = np.arange(clients * SIZE, dtype=np.int32) % EXAMPLES
    return Partition.by_sizes(rows, np.full(clients, SIZE, dtype=np.int64))


def federation(clients: int, cohort: int, data: Data) -> Federation:
    torch.manual_seed(0)
    method = fedquilt.fed_avg(lr=0.05, fraction=cohort / clients, batch=10)
    return Federation.of(nn.Linear(100, 10), data, partition(clients), method, seed=1)


def opened(federation: Federation, eager: bool) -> AbstractContextManager[Session]:
    """Open the engine of a long run, or the one that takes eager steps."""
    engine = fedquilt.processes(compute="eager") if eager else settled(fedquilt.auto(), federation, 10**4)
    return engine.open(federation)


def memory() -> float:
    """Return the memory of this process and its children, in MiB; what they share counts once (PSS)."""
    process = psutil.Process()
    return sum(p.memory_full_info().pss for p in [process, *process.children(recursive=True)]) / 2**20


def population(count: int, eager: bool) -> None:
    sizes, cohort, data = (10**3, 10**5, 10**6), 100, numbers(EXAMPLES, 100, 10)
    found: dict[int, list[float]] = {clients: [] for clients in sizes}
    with ExitStack() as stack:
        running, first = {}, 0.0
        for clients in sizes:
            before, begun = memory(), time.perf_counter()
            made = federation(clients, cohort, data)
            session = stack.enter_context(opened(made, eager))
            running[clients] = rounds(made.server, session, made.start(), last=10**6, measures=EVERY)
            next(running[clients])
            ready, taken = time.perf_counter() - begun, memory() - before
            first = first or taken
            more = (taken - first) * 2**20 / (clients - sizes[0]) if clients > sizes[0] else 0.0
            each = f", {more:5.1f} bytes for each client beyond 1,000" if more else ""
            print(f"{clients:9,} clients: first round after {ready:5.2f} s, {taken:6.1f} MiB{each}")
        for _ in range(count):
            for clients, ours in running.items():
                begun = time.perf_counter()
                next(ours)
                found[clients].append(time.perf_counter() - begun)
    middle = {clients: statistics.median(times) for clients, times in found.items()}
    for clients, seconds in middle.items():
        print(
            f"{clients:9,} clients: {1e3 * seconds:7.2f} ms a round, {seconds / middle[sizes[0]]:.2f} of that with 1,000"
        )
    draw("population", "clients", sizes, [1e3 * middle[clients] for clients in sizes], "ms a round of 100 clients")


def cohorts(count: int, eager: bool) -> None:
    sizes, data = (10, 100, 1_000, 10_000), numbers(EXAMPLES, 100, 10)
    found: dict[int, list[float]] = {cohort: [] for cohort in sizes}
    with ExitStack() as stack:
        running = {}
        for cohort in sizes:
            made = federation(20_000, cohort, data)
            session = stack.enter_context(opened(made, eager))
            running[cohort] = rounds(made.server, session, made.start(), last=10**6, measures=EVERY)
        for cohort in sizes:
            before = server_peak()
            next(running[cohort])
            print(
                f"{cohort:7,} clients per round: the server's peak grew by {server_peak() - before:5.1f} MiB",
                flush=True,
            )
        for _ in range(count):
            for cohort, ours in running.items():
                for _ in range(min(1_000 // cohort, 20) + 1):
                    begun = time.perf_counter()
                    next(ours)
                    found[cohort].append(time.perf_counter() - begun)
    seconds = [statistics.median(found[cohort]) for cohort in sizes]
    once, each = line(sizes, seconds)
    print(f"a line: {1e3 * once:.2f} ms a round and {1e6 * each:.1f} µs per client")
    for cohort, spent in zip(sizes, seconds, strict=True):
        off = 100 * (spent / (once + each * cohort) - 1)
        print(
            f"{cohort:7,} clients per round: {spent:8.4f} s, {1e6 * spent / cohort:7.1f} µs a client, {off:+5.1f}% off it"
        )
    draw("cohort", "clients per round", sizes, seconds, "seconds per round")


def line(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Return the line (a round's own time, a client's) with the smallest relative errors."""
    design = np.array([[1 / s, n / s] for n, s in zip(sizes, seconds, strict=True)])
    once, each = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    return float(once), float(each)


def server_peak() -> float:
    """Return the highest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def many_rounds(count: int, eager: bool) -> None:
    work = WORKLOADS["w3"]
    torch.manual_seed(0)
    data = work.data()
    made = Federation.of(work.model(), data, work.partition(data), work.method(), 1)
    seen = []
    with opened(made, eager) as session:
        for run, _ in rounds(made.server, session, made.start(), last=count, measures=EVERY):
            if run.round % (count // 40) == 0:
                seen.append((run.round, memory()))
    quarter = len(seen) // 4
    second = statistics.mean(m for _, m in seen[quarter : 2 * quarter])
    last = statistics.mean(m for _, m in seen[-quarter:])
    more = 100 * (last / second - 1)
    print(f"{count} rounds: {second:.1f} MiB in the second quarter, {last:.1f} MiB in the last: {more:+.2f}%")
    draw("rounds", "round", [at for at, _ in seen], [m for _, m in seen], "MiB, with workers", log=False)


def draw(name: str, x_label: str, x: Sequence[float], y: Sequence[float], y_label: str, log: bool = True) -> None:
    rows = [{"x": float(each), "y": float(other)} for each, other in zip(x, y, strict=True)]
    tall = alt.Scale(type="log") if name == "cohort" else alt.Scale(domainMin=0)
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(point=log)
        .encode(
            x=alt.X("x:Q", title=x_label, scale=alt.Scale(type="log" if log else "linear")),
            y=alt.Y("y:Q", title=y_label, scale=tall),
        )
        .properties(width=360, height=230)
    )
    path = Path("runs/bench") / f"{name}.png"
    write_spec(styled(chart).to_dict(), path)
    print(f"Wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["population", "cohort", "rounds"])
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--engine", choices=["default", "eager"], default="default")
    arguments = parser.parse_args()
    if arguments.what == "population":
        population(arguments.rounds or 25, arguments.engine == "eager")
    elif arguments.what == "cohort":
        cohorts(arguments.rounds or 5, arguments.engine == "eager")
    else:
        many_rounds(arguments.rounds or 5000, arguments.engine == "eager")


if __name__ == "__main__":
    main()
