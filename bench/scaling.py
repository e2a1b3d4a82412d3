"""Where the driver of a cluster saturates: rounds of 10, 100 and 1,000 nodes, simulated on measured constants.

    python bench/scaling.py                          # seconds; prints the table of docs/scaling.md

Every node has 16 workers, and every worker is given its share of a cohort in four tasks. The driver is one queue: giving a
task, taking a sum over from the object store and folding it are done one after the other, and workers wait for it. What a
call, a put, a take-over and a fold cost was measured by `python bench/ray.py costs`; how long clients train, and how fast
the network is, are assumed. With a tree, which is not built yet, every node hands out tasks to its own workers and folds
their sums, and the nodes' sums are folded 32 at a time.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

CALL = 1.1e-3
"""Seconds of the driver's CPU for a task: giving it, and hearing of its end. Measured."""

PUT = {200_000: 1.2e-3, 1_600_000: 5.5e-3, 10_000_000: 6.8e-3}
TAKE = {200_000: 0.31e-3, 1_600_000: 1.1e-3, 10_000_000: 22.5e-3}
FOLD = {200_000: 0.29e-3, 1_600_000: 4.4e-3, 10_000_000: 28.1e-3}
"""Seconds to put a model into the store, to take a sum over from it, and to fold that, by parameters. Measured."""

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


def flat(work: Work, lanes: int, network: float = NETWORK) -> Round:
    """Play a round through with one driver: an event is a task that ends at a worker, in the order of time."""
    rng, size = np.random.default_rng(0), work.parameters
    per_task = work.clients * work.client_seconds / TASKS
    answer = CALL / 2 + TAKE[size] + FOLD[size] + 8 * size / network
    now = busy = PUT[size]
    now += np.log2(lanes / WORKERS + 1) * 4 * size / network  # nodes pass the model on to each other
    ends: list[tuple[float, int, int]] = []
    for lane in range(lanes):
        now, busy = now + CALL / 2, busy + CALL / 2
        heapq.heappush(ends, (now + per_task * rng.uniform(0.8, 1.2), lane, 1))
    while ends:
        end, lane, number = heapq.heappop(ends)
        now, busy = max(now, end) + answer, busy + answer
        if number < TASKS:
            # Two tasks are queued at a worker: it goes on at once, unless the driver is a whole task behind.
            now, busy = now + CALL / 2, busy + CALL / 2
            begin = max(end, now - per_task)
            heapq.heappush(ends, (begin + per_task * rng.uniform(0.8, 1.2), lane, number + 1))
    return Round(now, busy / now, work.clients * work.client_seconds)


def tree(work: Work, nodes: int) -> Round:
    """Every node hands out and folds for its own workers; above them, sums are folded by `FAN` at a time."""
    size = work.parameters
    node = flat(work, WORKERS, network=math.inf)
    above = CALL + TAKE[size] + FOLD[size] + 8 * size / NETWORK
    left, seconds = nodes, node.seconds
    while left > 1:
        seconds += min(left, FAN) * above
        left = math.ceil(left / FAN)
    return Round(seconds, 0.0, node.ideal)


def saturation(work: Work) -> float:
    """Workers from which on a driver is busy all the time."""
    size = work.parameters
    each = CALL + TAKE[size] + FOLD[size] + 8 * size / NETWORK
    return work.clients * work.client_seconds / (TASKS * each)


def main() -> None:
    """Print the table."""
    columns = ("parameters", "a client trains", "clients a worker", "nodes", "round, one driver", "driver busy")
    print("|", " | ".join((*columns, "efficiency", "round, tree", "efficiency")), "|")
    print("|---" * 9 + "|")
    works = (Work(200_000, 0.05, 20), Work(1_600_000, 0.5, 10), Work(10_000_000, 5.0, 4))
    for work in works:
        for nodes in (10, 100, 1000):
            one, many = flat(work, nodes * WORKERS), tree(work, nodes)
            about = f"{work.parameters:,} | {work.client_seconds:g} s | {work.clients} | {nodes:,}"
            print(
                f"| {about} | {one.seconds:.1f} s | {one.busy:.0%} | {one.efficiency:.0%} | {many.seconds:.1f} s | "
                f"{many.efficiency:.0%} |"
            )
    for work in works:
        workers = saturation(work)
        rate = workers / work.client_seconds
        print(f"{work.parameters:,} parameters: saturated at {workers:,.0f} workers, {rate:,.0f} clients a second")


if __name__ == "__main__":
    main()
