"""Times a sweep with several trials at once against the same trials one after the other, in one run on one machine.

    python bench/sweep.py                        # 12 trials of the digits: at most 0.6 of the time, on two cores
    python bench/sweep.py --data mnist --model mnist_cnn --trials 4 --rounds 3
    python bench/sweep.py --w3                   # 24 learning rates of the workload W3 of bench/peers: at most 0.55

One after the other is `--jobs 1`: each trial then has a worker on every core. At once is the default: a trial a core, with
one worker each. The two take turns, so that a busy machine is busy for both; the ratio of their times is what counts. The
time on cores says what the same work costs either way, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXPERIMENT = """
[run]
rounds = {rounds}

[data]
name = "{data}"

[partition]
name = "dirichlet"
clients = 50
alpha = 0.5

[model]
name = "{model}"

[method]
name = "fed_avg_m"
fraction = 0.2

[repeat]
"run.seed" = {seeds}
"""

W3 = """
[run]
rounds = {rounds}
eval_every = 100

[data]
name = "w3:numbers"

[partition]
name = "iid"
clients = 100

[model]
name = "softmax_regression"

[method]
name = "fed_avg"
fraction = 0.1
epochs = 10
batch = 10

[grid]
"method.lr" = {rates}
"""

NUMBERS = """
import numpy as np

import fedquilt


def numbers():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((11_000, 100), np.float32), rng.integers(0, 10, 11_000)
    return fedquilt.arrays(x[:10_000], y[:10_000], x[10_000:], y[10_000:])
"""

MOST, MOST_OF_W3 = 0.6, 0.55


def seconds(home: Path, out: str, *words: str) -> tuple[float, float]:
    """Return the time that a sweep took, and that of all its processes on cores."""
    command = [sys.executable, "-m", "fedquilt", "sweep", "trials.toml", "--out", out, *words]
    begun, before = time.monotonic(), os.times()
    subprocess.run(command, cwd=home, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    on_cores = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - begun, on_cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, help="default 12; 24 with --w3")
    parser.add_argument("--w3", action="store_true", help="the workload W3 instead of a data set")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="mnist_2nn")
    parser.add_argument("--turns", type=int, default=1)
    arguments = parser.parse_args()
    trials = arguments.trials or (24 if arguments.w3 else 12)
    seeds = list(range(1, trials + 1))
    what = "W3" if arguments.w3 else f"{arguments.data}, {arguments.model}"
    text = EXPERIMENT.format(rounds=arguments.rounds, data=arguments.data, model=arguments.model, seeds=seeds)
    if arguments.w3:
        text = W3.format(rounds=arguments.rounds, rates=[round(0.002 * seed, 3) for seed in seeds])
    one = many = cores_one = cores_many = 0.0
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "trials.toml").write_text(text)
        (home / "w3.py").write_text(NUMBERS)
        for turn in range(arguments.turns):
            wall, on_cores = seconds(home, f"one-{turn}", "--jobs", "1")
            one, cores_one = one + wall, cores_one + on_cores
            wall, on_cores = seconds(home, f"many-{turn}")
            many, cores_many = many + wall, cores_many + on_cores
    load = os.getloadavg()[1]
    print(f"{trials} trials of {what}, on {os.cpu_count()} cores (load {load:.1f})")
    print(f"one after the other {one:.1f} s, a core each {many:.1f} s: {many / one:.2f} of the time")
    print(f"time on cores: {cores_one:.1f} s and {cores_many:.1f} s: {cores_many / cores_one:.2f}")
    most = MOST_OF_W3 if arguments.w3 else MOST
    if arguments.data == "digits" and many > most * one:
        raise SystemExit(f"more than {most} of the time")


if __name__ == "__main__":
    main()
