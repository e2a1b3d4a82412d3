"""Convolutions with stride 1 and filters of 3×3 or 5×5 by `convolution.cpp`, where Winograd's algorithm pays."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fedquilt.compute.kernels.build import LANES, library, pointers, sizes, usable
from fedquilt.compute.kernels.max_pool import pair

FEW = 4
"""Channels of an input, such as colours, up to which windows are multiplied with the filters as they are."""

WIDE = 128 * 128
"""Channels in times channels out up to which the kernel is taken: more weights do not stay in a core's cache."""


class CompiledConv2d(nn.Conv2d):
    """`nn.Conv2d` by the kernel; what comes out has its channels last."""

    kernel = "convolution"

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return the convolution of images (N, C, H, W)."""
        side, padding = self.kernel_size[0], _padding(self)
        shaped = self.weight.shape == (self.out_channels, self.in_channels, side, side)
        shaped = shaped and (self.bias is None or self.bias.shape == (self.out_channels,))
        images = input.dim() == 4 and len(input) and input.shape[1] == self.in_channels
        fit = shaped and images and min(input.shape[2:]) + 2 * padding >= side
        passed_on = input.requires_grad and self.in_channels <= FEW  # a gradient that the kernel does not compute
        if not fit or passed_on or not usable(input, self.weight, self.bias):
            return super().forward(input)  # which also says what is wrong
        return _Convolution.apply(input, self.weight, self.bias, padding)  # type: ignore[no-any-return,no-untyped-call]


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        if not weight.is_contiguous(memory_format=torch.channels_last):
            weight = weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        (images, channels, height, width), (filters, _, side, _) = x.shape, weight.shape
        about = sizes(images, height, width, channels, filters, side, padding)
        ctx.about = [*about, *sizes(*weight.stride())]
        room_for = library("convolution").convolution_room
        room_for.restype = ctypes.c_int64
        ctx.room = room_for(*about)
        around = 2 * padding - side + 1
        shape = (images, filters, height + around, width + around)
        y = torch.empty(shape, dtype=x.dtype, memory_format=torch.channels_last)
        room = x.new_empty(ctx.room)
        library("convolution").convolution_forward(*pointers(x, weight, bias, y, room), *ctx.about)
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_y = of_y.contiguous(memory_format=torch.channels_last)
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_weight = torch.empty_like(weight)
        of_bias = weight.new_empty(len(weight)) if ctx.needs_input_grad[2] else None
        room = x.new_empty(ctx.room)
        library("convolution").convolution_backward(
            *pointers(x, weight, of_y, of_x, of_weight, of_bias, room), *ctx.about
        )
        return of_x, of_weight, of_bias, None


def convolved(part: nn.Conv2d) -> bool:
    """Say whether the kernel computes a convolution.

    >>> convolved(nn.Conv2d(16, 32, 5)), convolved(nn.Conv2d(3, 32, 7)), convolved(nn.Conv2d(3, 32, 5, stride=2))
    (True, False, False)
    """
    return (
        part.kernel_size in {(3, 3), (5, 5)}
        and (part.stride, part.dilation, part.groups, part.padding_mode) == ((1, 1), (1, 1), 1, "zeros")
        and (part.in_channels <= FEW or part.in_channels % LANES == 0)
        and part.out_channels % LANES == 0
        and part.in_channels * part.out_channels <= WIDE
        and (isinstance(part.padding, str) or len(set(part.padding)) == 1)
        and 0 <= _padding(part) < part.kernel_size[0]
    )


def _padding(part: nn.Conv2d) -> int:
    if isinstance(part.padding, str):
        return part.kernel_size[0] // 2 if part.padding == "same" else 0
    return pair(part.padding)[0]
