"""Kills a run again and again with `kill -9`, resumes it each time, and compares it with an undisturbed one.

    python bench/kills.py                 # 100 kills of the whole process tree
    python bench/kills.py --kills 5

Each kill falls at a random moment after the process has started: while Python imports, while data load, in the middle of
a round, while a checkpoint is written. The final digest, the best model and metrics.jsonl (times aside) must equal the
undisturbed run's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors import safe_open

import fedquilt

SPEC = """
[run]
rounds = {rounds}
seed = 3
checkpoint_seconds = 0
keep = "best"

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
epochs = 2
momentum = 0.5
keep_momentum = true

[engine]
name = "processes"
workers = 2
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "fedquilt", *words]


def start(*words: str, folder: Path | None = None) -> subprocess.Popen[str]:
    # A session of its own: one signal then reaches the process and all of its workers.
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command(*words), cwd=folder, text=True, start_new_session=True, **pipes)


def require_success(process: subprocess.Popen[str], what: str) -> None:
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"{what} failed ({process.returncode}): {errors}")


def timeless(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if key not in ("seconds", "check")} for line in lines
    ]


def best(folder: Path) -> tuple[str, str]:
    """Return the name of the best model's file, which has its round, and the model's digest."""
    path = max((folder / "checkpoints").glob("best-*.safetensors"))
    with safe_open(path, framework="pt") as file:
        return path.name, file.metadata()["model"]


def undisturbed(spec: Path, folder: Path) -> float:
    """Run to the end, and return how long it took until the first round was done."""
    begun = time.monotonic()
    process = start("run", str(spec), "--out", str(folder))
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.02)
    start_up = time.monotonic() - begun
    require_success(process, "the undisturbed run")
    print(f"undisturbed: {time.monotonic() - begun:.1f} s, the first round after {start_up:.1f} s", flush=True)
    return start_up


def moment(rng: random.Random, start_up: float) -> float:
    """Draw when to kill: mostly while rounds are being run, sometimes before."""
    return start_up + rng.uniform(0, 1.5) if rng.random() < 0.75 else rng.uniform(0, start_up)


def kill_until_done(spec: Path, folder: Path, kills: int, rng: random.Random, start_up: float) -> tuple[int, int]:
    """Return how often the run was killed, and how often that was while rounds were being run."""
    done = inside = 0
    while True:
        begun = (folder / "spec.toml").exists()
        process = start("resume", str(folder)) if begun else start("run", str(spec), "--out", str(folder))
        if done >= kills:
            require_success(process, "the last resume")
            return done, inside
        try:
            process.wait(timeout=moment(rng, start_up))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            done += 1
            lines = folder / "metrics.jsonl"
            inside += lines.exists() and len(lines.read_text().splitlines()) > 0
            continue
        require_success(process, "a resume")
        return done, inside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=0, help="rounds of the run (default: thirty a kill)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        spec = home / "killed.toml"
        spec.write_text(SPEC.format(rounds=arguments.rounds or 30 * arguments.kills))
        start_up = undisturbed(spec, home / "whole")
        done, inside = kill_until_done(spec, home / "killed", arguments.kills, rng, start_up)
        whole, killed = fedquilt.summary(home / "whole"), fedquilt.summary(home / "killed")
        same = whole["digest"] == killed["digest"] and timeless(home / "whole") == timeless(home / "killed")
        same = same and best(home / "whole") == best(home / "killed")
        print(f"{done} kills, {inside} of them after the first round; state {killed['state']}")
        about = "that of the undisturbed run, metrics and best model included"
        print(f"digest {killed['digest']} {'is' if same else 'IS NOT'} {about}")
        if done < arguments.kills:
            print(f"the run ended after {done} of {arguments.kills} kills: give it more --rounds")
        if not same or done < arguments.kills:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
