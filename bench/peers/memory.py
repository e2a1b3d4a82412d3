"""Memory of a run that chooses how it computes, beside the same run with PyTorch's layers, one step after the other.

    python bench/peers/memory.py           # all workloads
    python bench/peers/memory.py w1 w3     # these

Each is a program of its own that starts, trains three rounds and ends; memory is the peak of its processes, as run.py
measures it, start-up included. What was found is written to results/memory.json and into the table of README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from math import inf
from pathlib import Path

from findings import PEAK_ROWS, keep_row
from run import FEDQUILT, HERE, start, where
from table import publish
from work import WORKLOADS, Work

ROUNDS = 3
EAGER = replace(FEDQUILT, variants={"eager": {}})


def peak(work: Work, eager: bool, folder: Path) -> tuple[int, str]:
    """Train some rounds; return the peak in megabytes, and how the program computed."""
    peer, variant = (EAGER, "eager") if eager else (FEDQUILT, "defaults")
    program = start(peer, variant, work, ROUNDS, folder, Path(sys.executable), inf)
    try:
        with program.watched():
            for _ in range(ROUNDS - 1):
                program.turn(record=False)
        program.ask("compare 1")
        return round(program.peak / 1e6), str(program.heard()["about"])
    finally:
        program.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="default: all")
    arguments = parser.parse_args()
    for name in arguments.workloads or WORKLOADS:
        load = round(os.getloadavg()[0], 1)
        with tempfile.TemporaryDirectory() as made:
            os.environ["PEERS_DATA"] = made
            WORKLOADS[name].write()
            chosen, about = peak(WORKLOADS[name], False, Path(made))
            eager, _ = peak(WORKLOADS[name], True, Path(made))
        print(f"{name}: {chosen} MB, eager {eager} MB: {chosen / eager:.2f} ({about}), load {load}", flush=True)
        found = {"chosen_mb": chosen, "eager_mb": eager, "about": about, "load": load}
        keep_row(HERE, PEAK_ROWS, name, where() | found)
        publish(HERE)


if __name__ == "__main__":
    main()
