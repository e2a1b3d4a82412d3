"""Compares the memory of a run with 100 clients and with 100,000, six examples each.

    python bench/memory.py

Prints the peak resident memory of this process and its workers, measured in a process of its own for each population. A
partition is two arrays, so that the difference is a few megabytes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import numpy as np
import psutil
import torch

import fedquilt
from fedquilt.data.data import Data, Split
from fedquilt.partition.partition import Partition

EXAMPLES = 6


class Peak:
    """A watcher that samples memory after every client."""

    def __init__(self) -> None:
        self.bytes = 0

    def begin(self, history: object, last: int) -> None:
        self.processes = [psutil.Process(), *psutil.Process().children()]

    def heard(self, clients: int, total: int) -> None:
        self.bytes = max(self.bytes, sum(process.memory_info().rss for process in self.processes))

    def round(self, record: object) -> None:
        self.heard(0, 0)


def measure(clients: int, most: int) -> int:
    """Train three rounds on data of one size, whatever the number of clients, and return the peak in bytes."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (most * EXAMPLES, 64), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, 10, (most * EXAMPLES,), generator=rng)
    data = Data("random", Split(x, y), Split(x[:1000], y[:1000]), 10, prepare=torch.Tensor.float)
    held = Partition.by_sizes(np.arange(clients * EXAMPLES), np.full(clients, EXAMPLES))
    peak = Peak()
    method = fedquilt.fed_avg(lr=0.01, fraction=100 / clients)
    fedquilt.train(torch.nn.Linear(64, 10), data, held, method, rounds=3, watcher=peak)
    return peak.bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs=2, default=(100, 100_000))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(measure(arguments.one, max(arguments.clients)))
        return
    sizes = []
    for clients in arguments.clients:
        command = [sys.executable, __file__, "--one", str(clients), "--clients", *map(str, arguments.clients)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        sizes.append(int(answer.stdout) / 2**20)
        print(f"{clients:8d} clients: {sizes[-1]:8.1f} MiB resident, workers included", flush=True)
    print(f"difference: {sizes[1] - sizes[0]:.1f} MiB")


if __name__ == "__main__":
    main()
