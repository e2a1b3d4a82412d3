"""Times rounds of this tree and of an older commit in alternation: what a change costs or saves.

    python bench/speed.py 9e8a597                  # W1, W3 and W6
    python bench/speed.py HEAD~3 w2 --rounds 5

Each tree runs its own program of the comparison with other frameworks (peers/on_fedquilt.py), with the engine that its
bench/workloads.py gives the workload. In every turn each does one round, because a shared machine's speed changes;
who begins alternates. A ratio is this tree's seconds divided by the older one's in the same turn: printed are the median of
the ratios and their middle half.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from math import inf
from pathlib import Path

from older import ROOT, checked_out

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from program import Program

WRITE = "import sys; from work import WORKLOADS; WORKLOADS[sys.argv[1]].write()"


def start(name: str, tree: Path, workload: str, rounds: int, folder: Path) -> Program:
    """Start a tree's program and have it do its first round."""
    peers = tree / "bench" / "peers"
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    environment |= {"PEERS_DATA": str(folder), "PYTHONPATH": f"{peers}:{tree / 'src'}"}
    # Each tree reads the data that it wrote: how they are kept may have changed.
    subprocess.run([sys.executable, "-c", WRITE, workload], env=environment, check=True)
    command = [sys.executable, str(peers / "on_fedquilt.py"), workload, str(rounds), str(folder / f"{name}.npy"), ""]
    return Program(name, command, environment, inf, most=1)  # an older tree does one round a turn


def ratios(old: Path, workload: str, rounds: int, warm_up: int) -> tuple[list[float], float, float]:
    """Return this tree's seconds divided by the older one's, turn by turn, and both medians."""
    with tempfile.TemporaryDirectory() as made:
        programs: list[Program] = []
        try:
            for name, tree in (("old", old), ("new", ROOT)):
                folder = Path(made) / name
                folder.mkdir()
                programs.append(start(name, tree, workload, 1 + warm_up + rounds, folder))
            for turn in range(warm_up + rounds):
                for program in programs if turn % 2 else reversed(programs):
                    program.turn(record=turn >= warm_up)
        finally:
            for program in programs:
                program.stop()
    before, now = (program.seconds for program in programs)
    return [b / a for a, b in zip(before, now, strict=True)], statistics.median(before), statistics.median(now)


def main() -> None:
    """Compare two trees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the commit to compare this tree with")
    parser.add_argument("workloads", nargs="*", default=["w1", "w3", "w6"], metavar="workload", help="w1, w2, …")
    parser.add_argument("--rounds", type=int, default=20, help="rounds to time (default: 20)")
    parser.add_argument("--warm-up", type=int, default=3, help="rounds before those (default: 3)")
    asked = parser.parse_args()
    with checked_out(asked.old) as (commit, tree):
        for workload in asked.workloads:
            found, before, now = ratios(tree, workload, asked.rounds, asked.warm_up)
            low, middle, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
            print(
                f"{workload}: {1000 * now:.1f} ms a round, {1000 * before:.1f} ms at {commit}: "
                f"{middle:.3f} of the time ({low:.3f} to {high:.3f}), load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
