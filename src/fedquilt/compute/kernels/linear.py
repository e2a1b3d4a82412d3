"""Linear layers with many outputs by `linear.cpp`: PyTorch's but for the last bits, in less time for some batch sizes."""

from __future__ import annotations

from math import prod

from torch import Tensor
from torch.nn import functional

from fedquilt.compute.kernels.build import library, pointers, sizes

KERNEL = "linear"
ROWS = range(16, 257)
"""Batches that the kernel takes. With more rows it is worth copying the weights into another layout, as PyTorch does."""
INPUTS = range(64, 1025)
LEAST_OUTPUTS = 1024


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return xWᵀ + b, without a gradient.

    >>> import torch
    >>> linear(torch.ones(2, 3), torch.ones(4, 3), torch.arange(4.0))
    tensor([[3., 4., 5., 6.],
            [3., 4., 5., 6.]])
    """
    (outputs, inputs), rows = weight.shape, prod(x.shape[:-1])
    taken = rows in ROWS and inputs in INPUTS and outputs >= LEAST_OUTPUTS and x.shape[-1] == inputs
    if not taken or not weight.is_contiguous():
        return functional.linear(x, weight, bias)
    x, bias = x.contiguous(), None if bias is None else bias.contiguous()
    y = x.new_empty(*x.shape[:-1], outputs)
    library(KERNEL).linear_forward(*pointers(x, weight, bias, y), *sizes(rows, inputs, outputs))
    return y
