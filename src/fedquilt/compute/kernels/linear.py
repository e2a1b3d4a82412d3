"""Linear layers with many outputs for few rows by `linear.cpp`: PyTorch's but for the last bits."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fedquilt.compute.kernels.build import library, pointers, sizes

KERNEL = "linear"
FEW, MANY = 256, 1024
"""The kernel is used for few rows, with more of which laying the weights out anew is worth it, and for many outputs of no
more than so many inputs."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return xWᵀ + b, without a gradient.

    >>> import torch
    >>> linear(torch.ones(2, 3), torch.ones(4, 3), torch.arange(4.0))
    tensor([[3., 4., 5., 6.],
            [3., 4., 5., 6.]])
    """
    (outputs, inputs), rows = weight.shape, x.numel() // weight.shape[1]
    if not 0 < rows <= FEW or not inputs <= MANY <= outputs or not weight.is_contiguous():
        return functional.linear(x, weight, bias)
    x, bias = x.contiguous(), None if bias is None else bias.contiguous()
    y = x.new_empty(*x.shape[:-1], outputs)
    library(KERNEL).linear_forward(*pointers(x, weight, bias, y), *sizes(rows, inputs, outputs))
    return y
