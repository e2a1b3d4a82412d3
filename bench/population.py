"""A population of a million clients: its partition, its statistics, and three rounds.

    python bench/population.py
    python bench/population.py --partition power_law

Prints seconds and the memory that each part adds to what the data take, with workers, and fails where all of it takes more
than 60 s or 1 GB. 5,000,000 examples of 16 bytes, 10 classes; 100 clients per round train a softmax regression.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import psutil
import torch
from torch import nn

import fedquilt
from fedquilt.analysis.advice import advice
from fedquilt.analysis.skew import skew
from fedquilt.data.data import Data, Split

ARGUMENTS = {"dirichlet": {"alpha": 1.0}}
EXAMPLES = 5
T = TypeVar("T")


class Peak:
    """Watches the memory of this process and its children; pages that a fork shares are counted once."""

    def __init__(self) -> None:
        self.most, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.most = max(self.most, memory())


def memory() -> int:
    process = psutil.Process()
    own = process.memory_info().rss
    for child in process.children():
        try:
            own += child.memory_full_info().uss
        except psutil.Error:
            continue
    return own


def measured(name: str, begun: int, work: Callable[[], T]) -> tuple[T, float, int]:
    start = time.perf_counter()
    with Peak() as peak:
        result = work()
    seconds = time.perf_counter() - start
    more = max(peak.most, memory()) - begun
    print(f"{name:12} {seconds:6.1f} s   {more / 2**20:7.0f} MiB more", flush=True)
    return result, seconds, more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--partition", default="dirichlet", choices=["dirichlet", "iid", "power_law", "natural"])
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    count = arguments.clients * EXAMPLES
    x = torch.from_numpy(rng.integers(0, 256, (count, 16), dtype=np.uint8))
    y = torch.from_numpy(rng.integers(0, 10, count))
    ids = rng.integers(0, arguments.clients, count) if arguments.partition == "natural" else None
    data = Data("random", Split(x, y, ids=ids), Split(x[:1000], y[:1000]), 10, prepare=torch.Tensor.float)
    model = nn.Linear(16, 10)
    begun = memory()
    print(f"{arguments.clients:,} clients, {count:,} examples; the data take {begun / 2**20:.0f} MiB with everything")

    def partition() -> fedquilt.Partition:
        if arguments.partition == "natural":
            return fedquilt.natural(data)
        make = getattr(fedquilt, arguments.partition)
        return make(y.numpy(), arguments.clients, **ARGUMENTS.get(arguments.partition, {}))

    def train(held: fedquilt.Partition) -> fedquilt.Result:
        method = fedquilt.fed_avg(lr=0.001, fraction=100 / len(held))
        return fedquilt.train(model, data, held, method, rounds=3)

    held, first, built = measured(arguments.partition, begun, partition)
    found, second, seen = measured("statistics", begun, lambda: skew(held, y.numpy()))
    _, third, trained = measured("three rounds", begun, lambda: train(held))
    most = max(built, seen, trained, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10 - begun) / 2**30
    total = first + second + third
    about = found.summary()
    print(f"EMD {about['emd']:.3f}, Gini {about['size_gini']:.3f}; try {advice(found)[0].methods[0]}")
    print(f"in all: {total:.1f} s (of 60), at most {most:.2f} GiB more with workers (of 1)")
    sys.exit(total > 60 or most > 1)


if __name__ == "__main__":
    main()
