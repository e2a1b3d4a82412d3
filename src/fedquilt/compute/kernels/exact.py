"""Sums of whole numbers by `exact.cpp`, or by PyTorch where fedquilt was installed without it: the same bits, but slower.

`python bench/sums.py` compares the two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedquilt.compute.kernels.build import installed_library, pointers, sizes

KERNEL = "exact"

VALUES = 2**16
"""Values that PyTorch takes in at once, about: as many as stay in a core's cache. It changes no bits."""


def add_whole(total: Tensor, rows: Tensor, scales: Sequence[float]) -> list[float]:
    """Add rows, each times its scale and rounded to whole numbers, to a vector of them; return each row's largest term.

    Ties are rounded to even. A sum that does not fit into 64 bits wraps around: the largest terms tell.

    >>> total = torch.zeros(3, dtype=torch.int64)
    >>> add_whole(total, torch.tensor([[0.5, 1.5, -2.5], [0.5, 0.25, 0.0]]), [1.0, 2.0])
    [2.5, 1.0]
    >>> total
    tensor([ 1,  2, -2])
    """
    if rows.shape != (len(scales), *total.shape) or total.dim() != 1:
        raise ValueError(f"cannot add rows of {tuple(rows.shape)} with {len(scales)} scales to {tuple(total.shape)}")
    kernel = installed_library(KERNEL)
    plain = rows.dtype == torch.float32 and total.dtype == torch.int64 and total.is_contiguous()
    if kernel is None or not plain or not rows.device.type == total.device.type == "cpu":
        return add_whole_by_torch(total, rows, scales)
    rows, factors, largest = rows.contiguous(), np.asarray(scales, dtype=np.float64), np.zeros(len(rows))
    kernel.exact_add(
        *pointers(rows),
        *sizes(*rows.shape),
        ctypes.c_void_p(factors.ctypes.data),
        *pointers(total),
        ctypes.c_void_p(largest.ctypes.data),
    )
    return largest.tolist()


def add_whole_by_torch(total: Tensor, rows: Tensor, scales: Sequence[float]) -> list[float]:
    """Do what `add_whole` does, with operations of PyTorch."""
    factors = torch.tensor(scales, dtype=torch.float64)[:, None]
    several = max(VALUES // max(len(total), 1), 1)
    for some, scale in zip(torch.split(rows, several), torch.split(factors, several), strict=True):
        for sums, values in zip(torch.split(total, VALUES), torch.split(some, VALUES, dim=1), strict=True):
            sums.add_(values.double().mul_(scale).round_().long().sum(dim=0))
    sizes_of_rows = rows.abs().amax(dim=1).double() if rows.numel() else torch.zeros(len(rows), dtype=torch.float64)
    return (sizes_of_rows * factors[:, 0]).tolist()
