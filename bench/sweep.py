"""Times a sweep with several trials at once against the same trials one after the other, in one run on one machine.

    python bench/sweep.py                        # 12 trials of the digits: at most 0.6 of the time, on two cores
    python bench/sweep.py --data mnist --model mnist_cnn --trials 4 --rounds 3

One after the other is `--jobs 1`: each trial then has a worker on every core. At once is the default: a trial a core, with
one worker each. The two take turns, so that a busy machine is busy for both; the ratio of their times is what counts.
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

MOST = 0.6


def seconds(home: Path, out: str, *words: str) -> float:
    command = [sys.executable, "-m", "fedquilt", "sweep", "trials.toml", "--out", out, *words]
    begun = time.monotonic()
    subprocess.run(command, cwd=home, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="mnist_2nn")
    parser.add_argument("--turns", type=int, default=1)
    arguments = parser.parse_args()
    seeds = list(range(1, arguments.trials + 1))
    text = EXPERIMENT.format(rounds=arguments.rounds, data=arguments.data, model=arguments.model, seeds=seeds)
    one = many = 0.0
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "trials.toml").write_text(text)
        for turn in range(arguments.turns):
            one += seconds(home, f"one-{turn}", "--jobs", "1")
            many += seconds(home, f"many-{turn}")
    load = os.getloadavg()[1]
    print(
        f"{arguments.trials} trials of {arguments.data}, {arguments.model}, on {os.cpu_count()} cores (load {load:.1f})"
    )
    print(f"one after the other {one:.1f} s, a core each {many:.1f} s: {many / one:.2f} of the time")
    if arguments.data == "digits" and many > MOST * one:
        raise SystemExit(f"more than {MOST} of the time")


if __name__ == "__main__":
    main()
