"""Local response normalisation, which the CIFAR network of TensorFlow's tutorial has; by `response_norm.cpp` if compiled.

Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural Networks", section 3.3.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fedquilt.compute.kernels.build import LANES, library, pointers, sizes, usable


class LocalResponseNorm(nn.Module):
    """Divide x by (1 + α·mean of x² over the `size` channels around it)^(3/4) (Krizhevsky et al. 2012, section 3.3).

    The same function as `nn.LocalResponseNorm(size, alpha, 0.75, 1.0)`, which spends most of its time in a pooling over
    three dimensions and a general power. Here the sum is a product with a band matrix, and the power two square roots.

    TensorFlow's `lrn(x, 4, bias=1.0, alpha=0.001 / 9, beta=0.75)` is `LocalResponseNorm(size=9, alpha=0.001)`: it takes
    a radius for the size and multiplies the sum, not the mean.

    >>> import torch
    >>> LocalResponseNorm(size=3, alpha=3.0)(torch.ones(1, 4, 1, 1)).flatten() ** (-4 / 3)
    tensor([3.0000, 4.0000, 4.0000, 3.0000])
    """

    compiled_as: type[nn.Module]
    """What takes its place where a run is compiled: see `fedquilt.compute.kernels`."""

    def __init__(self, size: int, alpha: float) -> None:
        """Fix the width, an odd number of channels, and the strength."""
        super().__init__()
        self.radius = size // 2
        self.scale = alpha / size

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (N, C, H, W)."""
        channels = x.shape[1]
        band = x.new_full((channels, channels), self.scale).tril(self.radius).triu(-self.radius)
        root = (band @ x.square().flatten(2) + 1.0).rsqrt().view_as(x)
        return x * (root * root.sqrt())


class CompiledLocalResponseNorm(LocalResponseNorm):
    """The same by `response_norm.cpp`, for images with channels last."""

    kernel = "response_norm"

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (N, C, H, W)."""
        last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        if not last or x.shape[1] % LANES or not usable(x):
            return super().forward(x)
        return _ByResponse.apply(x, self.radius, self.scale)  # type: ignore[no-any-return,no-untyped-call]


LocalResponseNorm.compiled_as = CompiledLocalResponseNorm
CompiledLocalResponseNorm.compiled_as = CompiledLocalResponseNorm


class _ByResponse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, radius: int, scale: float) -> Tensor:
        channels = x.shape[1]
        ctx.about = [*sizes(x.numel() // channels, channels, radius), ctypes.c_float(scale)]
        ctx.room = channels + 2 * radius
        y, room = torch.empty_like(x), x.new_empty(ctx.room)
        library("response_norm").response_norm_forward(*pointers(x, y, room), *ctx.about)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        of_y = of_y.contiguous(memory_format=torch.channels_last)
        of_x, room = torch.empty_like(x), x.new_empty(4 * ctx.room)
        library("response_norm").response_norm_backward(*pointers(of_y, x, of_x, room), *ctx.about)
        return of_x, None, None
