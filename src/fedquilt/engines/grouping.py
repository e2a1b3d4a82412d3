"""How much goes into one task, where giving one takes time: enough work for that to be worth it, and no more.

It changes no bits: a task is done client by client, or block by block, and blocks are never cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

CLIENTS, SECONDS = 10, 0.1
"""A task has so many clients or takes so long, at least, if there are enough clients for all lanes."""

SUMS_PER_LANE = 4
"""Sums that a lane sends per round, about: what the server receives does not grow with the cohort then."""

WORTH_SUMMING = 3
"""Updates from which on a sum, of 64-bit numbers, is smaller than they are."""


@dataclass(eq=False)
class Grouping:
    """Puts blocks of clients together into tasks, by the CPU that the clients of earlier tasks took."""

    seconds_per_client: float = SECONDS

    def note(self, clients: int, seconds: float) -> None:
        """Learn from a task that is done."""
        if clients:
            self.seconds_per_client += 0.2 * (seconds / clients - self.seconds_per_client)

    def grouped(self, blocks: Sequence[list[int]], lanes: int, sums: bool) -> list[list[int]]:
        """Put consecutive blocks of slots together, into as many tasks for every lane as there are for the others.

        >>> Grouping(seconds_per_client=0.02).grouped([[slot] for slot in range(9)], lanes=2, sums=False)
        [[0, 1, 2, 3], [4, 5, 6, 7, 8]]
        """
        if not blocks:
            return []
        lanes = min(max(lanes, 1), len(blocks))
        clients = min(CLIENTS, math.ceil(SECONDS / max(self.seconds_per_client, 1e-9)))
        per_lane = max(len(blocks) // math.ceil(clients / len(blocks[0])) // lanes, 1)
        tasks = lanes * (min(per_lane, SUMS_PER_LANE) if sums else per_lane)
        cuts = [number * len(blocks) // tasks for number in range(tasks + 1)]
        return [[slot for block in blocks[first:last] for slot in block] for first, last in pairwise(cuts)]
