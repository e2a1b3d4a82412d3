"""The protocol between run.py and a peer's program: a line on stdin asks, a line of JSON answers.

A program is a function `simulate(work, turns)` that trains until `turns.boundary()` says no, and returns the model as one
vector. It is called twice: first for the rounds that are timed, as many at a time as run.py asks for; then for one round of
`work.to_compare()`, whose model goes into the file that run.py names. For whole.py it is called once, for all rounds of a
run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from work import WORKLOADS, Work


@dataclass
class Turns:
    """Where a program stands: how many turns there are and are done, how many rounds of the current one, since when."""

    rounds: int
    """The turns: as many rounds, unless several are asked for in a turn."""
    timed: bool
    variant: str
    done: int = -1
    size: int = 1
    """Rounds of the current turn."""
    left: int = 1
    """Those of them that are not done."""
    asked: float = 0.0
    whole: bool = False
    """Whether it is a run of so many rounds, as users start one, and not rounds that are asked for."""

    def boundary(self) -> bool:
        """Tell how long a round took when those of a turn are over, and wait for the next turn; False: there is none."""
        self.left -= 1
        if self.left:
            return True
        seconds = (time.perf_counter() - self.asked) / self.size
        self.done += 1
        if self.timed:
            answer({"seconds": seconds} if self.done else {"ready": True})
            self.size = wait()
        self.left = self.size
        self.asked = time.perf_counter()
        return self.done < self.rounds


def answer(said: dict[str, object]) -> None:
    """Tell run.py something. It listens on a pipe of its own, so that whatever a framework prints does no harm."""
    os.write(int(os.environ["PEERS_ANSWERS"]), (json.dumps(said) + "\n").encode())


def wait() -> int:
    """Wait until something is asked for, and return of how many rounds it is."""
    asked = sys.stdin.readline().split()
    if not asked:
        raise SystemExit
    return int(asked[-1])


def play(simulate: Callable[[Work, Turns], np.ndarray], about: Callable[[Work, str], str] | None = None) -> None:
    """Take part in the benchmark: `program.py workload rounds file [variant]`.

    `about`, asked when the timed rounds are over, says how the program went about the workload.
    """
    name, rounds, file, *variant = sys.argv[1:]
    work, chosen = WORKLOADS[name], "".join(variant)
    if "PEERS_WHOLE" in os.environ:
        simulate(work, Turns(int(rounds), timed=False, variant=chosen, whole=True))
        answer({"about": about(work, chosen) if about else ""})
        return
    simulate(work, Turns(int(rounds), timed=True, variant=chosen))
    how = about(work, chosen) if about else ""
    np.save(file, simulate(work.to_compare(), Turns(1, timed=False, variant=chosen)))
    answer({"about": how})
