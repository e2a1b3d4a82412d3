"""Memory of a run that chooses how it computes, beside the same run with PyTorch's layers, one step after the other.

    python bench/peers/memory.py           # all workloads
    python bench/peers/memory.py w1 w3     # these

Each is a program of its own that starts, trains three rounds and ends; memory is the peak of its processes, as run.py
measures it, start-up included. What was found is written to results/memory.json and into the table of README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from math import inf
from pathlib import Path

from findings import kept_memory
from run import FEDQUILT, HERE, conditions, start
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
        return round(program.peak / 2**20), str(program.heard()["about"])
    finally:
        program.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="default: all")
    arguments = parser.parse_args()
    for name in arguments.workloads or WORKLOADS:
        at, load = conditions(), round(os.getloadavg()[0], 1)
        with tempfile.TemporaryDirectory() as made:
            os.environ["PEERS_DATA"] = made
            WORKLOADS[name].write()
            chosen, about = peak(WORKLOADS[name], False, Path(made))
            eager, _ = peak(WORKLOADS[name], True, Path(made))
        print(f"{name}: {chosen} MB, eager {eager} MB: {chosen / eager:.2f} ({about}), load {load}", flush=True)
        where = {"commit": at["commit"], "when": at["when"], "machine": at["machine"].partition(", load")[0]}
        rows = kept_memory(HERE) | {
            name: {**where, "chosen_mb": chosen, "eager_mb": eager, "about": about, "load": load}
        }
        ordered = sorted(rows, key=lambda each: int(each[1:]))
        lines = [f"{json.dumps(each)}: {json.dumps(rows[each])}" for each in ordered]
        (HERE / "results" / "memory.json").write_text("{\n " + ",\n ".join(lines) + "\n}\n")
        publish(HERE)


if __name__ == "__main__":
    main()
