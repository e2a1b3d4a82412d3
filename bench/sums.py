"""Sums over clients: how long one client's update takes by the kernel and by PyTorch, for models of several sizes.

python bench/sums.py
"""

from __future__ import annotations

import statistics
import time

import torch

from fedquilt.compute.kernels.build import installed_library
from fedquilt.compute.kernels.exact import KERNEL, add_whole, add_whole_by_torch

SIZES = {"softmax regression (W6)": 1_010, "2NN (W1)": 199_210, "CNN (W2)": 1_663_370, "word LSTM (W10)": 4_950_800}
TURNS = 21


def seconds(add, size: int) -> float:
    """Return the median time of adding one update."""
    update, total = torch.randn(1, size) * 1e-3, torch.zeros(size, dtype=torch.int64)
    took = []
    for _ in range(TURNS):
        begin = time.perf_counter()
        add(total, update, [2.0**40])
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def main() -> None:
    """Print a table."""
    if installed_library(KERNEL) is None:
        raise SystemExit("fedquilt was installed without kernels: no C++ compiler was found then")
    torch.set_num_threads(1)
    print("| model | parameters | kernel, ms | PyTorch, ms | ratio |")
    print("|---|---|---|---|---|")
    for name, size in SIZES.items():
        kernel, pytorch = seconds(add_whole, size), seconds(add_whole_by_torch, size)
        print(f"| {name} | {size:,} | {kernel * 1e3:.3f} | {pytorch * 1e3:.3f} | {pytorch / kernel:.1f} |")


if __name__ == "__main__":
    main()
