"""Runs randomly changed specs and lists those that give a traceback, take long or answer with an endless message.

    python bench/fuzz.py                         # 100,000 of them, one process per core
    python bench/fuzz.py --first 5000 --count 1  # one of them again, with its spec and its message

The changes and the trials are those of tests/fuzzing, where `make test` tries the first 2,000.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from pathlib import Path

# Not this folder itself: it has a file of the name of Ray's package.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from fuzzing.mutations import mutation  # noqa: E402
from fuzzing.trials import Outcome, outcomes  # noqa: E402

from fedquilt.base.text import visible  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description="Try randomly changed specs.")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100_000, help="how many seeds")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    begun = time.monotonic()
    seeds = range(asked.first, asked.first + asked.count)
    if asked.count == 1:
        changed = mutation(asked.first)
        print(f"fedquilt {changed.command} spec.toml", *(f"--set {visible(change, 200)!r}" for change in changed.sets))
        print(visible(changed.spec.decode(errors="replace"), 5000, keep="\n"))
    # Each process starts others, which a daemon may not: hence plain processes and not a pool of them.
    answers: multiprocessing.SimpleQueue[Outcome] = multiprocessing.SimpleQueue()
    for number in range(asked.processes):
        multiprocessing.Process(target=_part, args=(seeds[number :: asked.processes], answers)).start()
    trained = refused = wrong = 0
    longest = 0.0
    for done in range(1, asked.count + 1):
        outcome = answers.get()
        longest = max(longest, outcome.seconds)
        trained, refused = trained + outcome.trained, refused + bool(outcome.message)
        if outcome.wrong is not None:
            wrong += 1
            print(f"seed {outcome.seed}: {outcome.wrong}", flush=True)
        elif asked.count == 1:
            print(f"\n{outcome.message or 'It ran.'}")
        if done % 1000 == 0:
            print(
                f"{done:,} in {time.monotonic() - begun:.0f} s: {refused:,} refused, {trained:,} trained, {wrong} wrong"
            )
    print(f"{asked.count:,} specs in {time.monotonic() - begun:.0f} s: {refused:,} refused with a message, ", end="")
    print(f"{trained:,} came to training; the longest took {longest:.1f} s; {wrong} wrong")
    sys.exit(bool(wrong))


def _part(seeds: range, answers: multiprocessing.SimpleQueue[Outcome]) -> None:
    for outcome in outcomes(seeds):
        answers.put(outcome)


if __name__ == "__main__":
    main()
