"""Kills a sweep again and again with `kill -9`, starts the same command each time, and compares its trials with runs alone.

    python bench/sweep_kills.py                 # 20 kills
    python bench/sweep_kills.py --kills 3

Each kill falls at a random moment: while Python imports, while trials begin, in the middle of rounds, between two trials.
Every other one kills the sweep, its trials and their workers at once; the others kill the sweep alone, whose trials then
save and end by themselves. The digest and metrics.jsonl (times aside) of every trial must equal those of a run alone.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import kills
import psutil
from kills import timeless

import fedquilt

EXPERIMENT = """
[run]
rounds = {rounds}
checkpoint_seconds = 0

[data]
name = "digits"

[partition]
name = "dirichlet"
clients = 40
alpha = 0.5

[model]
name = "mnist_2nn"

[method]
name = "fed_avg_m"
fraction = 0.25
momentum = 0.5
keep_momentum = true

[grid]
"method.lr" = [0.05, 0.1]

[repeat]
"run.seed" = [1, 2]
"""


def rounds_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*/metrics.jsonl"))


def wait(process: subprocess.Popen[str], folder: Path, rng: random.Random) -> bool:
    """Wait for the moment to kill: mostly some rounds after the start, sometimes earlier; say whether it still runs."""
    rounds = rounds_in(folder) + rng.randint(1, 12)
    until = time.monotonic() + (rng.uniform(0, 5) if rng.random() < 0.25 else 600)
    while process.poll() is None and rounds_in(folder) < rounds and time.monotonic() < until:
        time.sleep(0.02)
    return process.poll() is None


def kill_until_done(home: Path, most: int, rng: random.Random) -> int:
    """Return how often the sweep was killed before it came to its end."""
    done = 0
    while True:
        process = kills.start("sweep", "rates.toml", "--out", "killed", "--jobs", "2", folder=home)
        if done < most and wait(process, home / "killed", rng):
            below = psutil.Process(process.pid).children(recursive=True)
            (os.kill if done % 2 else os.killpg)(process.pid, signal.SIGKILL)
            process.communicate()
            if psutil.wait_procs(below, timeout=60)[1]:
                raise SystemExit("processes are left a minute after the sweep was killed")
            done += 1
            continue
        kills.require_success(process, "the sweep")
        return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=0, help="rounds of a trial (default: five a kill)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "rates.toml").write_text(EXPERIMENT.format(rounds=arguments.rounds or 5 * arguments.kills))
        done = kill_until_done(home, arguments.kills, random.Random(arguments.seed))
        trials = fedquilt.experiment(home / "rates.toml").trials
        states, same = [], []
        for trial in trials:
            digest = fedquilt.run(trial.spec, out=home / trial.name).result.digest
            found = fedquilt.summary(home / "killed" / trial.name)
            states.append(found["state"])
            same.append(
                found["digest"] == digest and timeless(home / trial.name) == timeless(home / "killed" / trial.name)
            )
        print(f"{done} kills; trials: {', '.join(states)}")
        print(f"all trials are {'' if all(same) else 'NOT '}those of runs alone, metrics included")
        if done < arguments.kills:
            print(f"the sweep ended after {done} of {arguments.kills} kills: give it more --rounds")
        if not all(same) or done < arguments.kills:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
