"""The protocol between run.py and a peer's program: lines of JSON on stdout, a line on stdin for each round.

The program says {"ready": true}, waits; a line on stdin asks for a round, {"seconds": ...} answers it. After CHECKED
rounds the answer also holds the loss. What the framework itself prints on stdout goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from work import WORKLOADS, Work

CHECKED = 5
"""The loss is told after so many rounds."""


class Turns:
    """Where a program stands: which rounds are done, and when the current one was asked for."""

    def __init__(self) -> None:
        self.work: Work = WORKLOADS[sys.argv[1]]
        self.rounds = int(sys.argv[2])
        self.variant = sys.argv[3] if len(sys.argv) > 3 else ""
        self.done = -1
        self.asked = 0.0
        self.out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def boundary(self, loss: Callable[[], float]) -> bool:
        """Tell the round that has just ended (or readiness), then wait until another is asked for; False: no more."""
        seconds = time.perf_counter() - self.asked
        self.done += 1
        said: dict[str, object] = {"seconds": seconds} if self.done else {"ready": True}
        if self.done == CHECKED:
            said["loss"] = float(loss())
        self.out.write(json.dumps(said) + "\n")
        self.out.flush()
        if self.done == self.rounds or not sys.stdin.readline():
            return False
        self.asked = time.perf_counter()
        return True
