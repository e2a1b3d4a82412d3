"""Group normalisation by `group_norm.cpp`, with the ReLU or ReLU6 that follows it: PyTorch's values, but for the last bits.

PyTorch reads and writes an image for each of the two, forward and backward, and with channels last its gradient of the
normalisation is slow: together they take half of the time of a MobileNetV2.
"""

from __future__ import annotations

import ctypes
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fedquilt.compute.kernels.build import library, pointers, sizes, usable

HIGHEST: dict[type[nn.Module], float] = {nn.ReLU: inf, nn.ReLU6: 6.0}
"""Activations that the kernel computes too, and what they cut off."""


class CompiledGroupNorm(nn.GroupNorm):
    """`nn.GroupNorm` by the kernel, for images with channels last; with `highest`, the activation after it as well."""

    kernel = "group_norm"
    highest: float | None = None

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return the normalised images, cut off at 0 and at `highest` where there is one."""
        last = input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last)
        few = input.numel() <= self.num_groups  # of which PyTorch says what is wrong, if anything is
        if not last or few or not usable(input, self.weight, self.bias):
            made = super().forward(input)
            return made if self.highest is None else functional.hardtanh(made, 0.0, self.highest)
        low, high = (-inf, inf) if self.highest is None else (0.0, self.highest)
        return _Normalised.apply(input, self.weight, self.bias, self.num_groups, self.eps, low, high)  # type: ignore[no-any-return,no-untyped-call]


class Passed(nn.Module):
    """An activation that was computed by the layer before it."""

    def forward(self, x: Tensor) -> Tensor:
        """Return what is given."""
        return x


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, low: float, high: float
    ) -> Tensor:
        images, channels, height, width = x.shape
        y, mean, rstd = torch.empty_like(x), x.new_empty(images, groups), x.new_empty(images, groups)
        ctx.about = sizes(images, height * width, channels, groups)
        ctx.bounds = [ctypes.c_float(low), ctypes.c_float(high)]
        given = pointers(x, weight, bias, y, mean, rstd)
        library("group_norm").group_norm_forward(*given, *ctx.about, ctypes.c_float(eps), *ctx.bounds)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, rstd = ctx.saved_tensors
        of_y = of_y.contiguous(memory_format=torch.channels_last)
        of_x = torch.empty_like(x)
        of_weight, of_bias = (torch.zeros(weight.shape, dtype=torch.float64) for _ in range(2))
        given = pointers(of_y, x, weight, bias, mean, rstd, of_x, of_weight, of_bias)
        library("group_norm").group_norm_backward(*given, *ctx.about, *ctx.bounds)
        return of_x, of_weight.to(weight.dtype), of_bias.to(bias.dtype), None, None, None, None
