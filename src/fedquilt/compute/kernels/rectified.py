"""A ReLU with what stands around it in networks without normalisation, by `rectified.cpp`, in one pass over the values."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fedquilt.compute.kernels.build import library, pointers, sizes, usable

KERNEL = "rectified"


def rectified(
    x: Tensor,
    before: Tensor,
    after: Tensor | None = None,
    scale: Tensor | None = None,
    shortcut: Tensor | None = None,
) -> Tensor:
    """Return max(scale·x + before + shortcut, 0) + after, where `scale`, `before` and `after` are single numbers.

    >>> rectified(torch.tensor([-1.0, 2.0]), torch.tensor([0.5]), after=torch.tensor([0.25]))
    tensor([0.2500, 2.7500])
    """
    z = (x if scale is None else x * scale) + before
    y = functional.relu(z if shortcut is None else z + shortcut)
    return y if after is None else y + after


def rectified_by_kernel(
    x: Tensor,
    before: Tensor,
    after: Tensor | None = None,
    scale: Tensor | None = None,
    shortcut: Tensor | None = None,
) -> Tensor:
    """Do what `rectified` does by the kernel, if the tensors are such that it can."""
    alike = shortcut is None or (shortcut.shape == x.shape and shortcut.stride() == x.stride())
    dense = x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
    single = all(number is None or number.numel() == 1 for number in (before, after, scale))
    if not alike or not dense or not single or not usable(x, before, after, scale, shortcut):
        return rectified(x, before, after, scale, shortcut)
    return _Rectified.apply(x, before, after, scale, shortcut)  # type: ignore[no-any-return,no-untyped-call]


class _Rectified(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, before: Tensor, after: Tensor | None, scale: Tensor | None, shortcut: Tensor | None
    ) -> Tensor:
        y = torch.empty_like(x)
        library(KERNEL).rectified_forward(*pointers(x, scale, before, shortcut, after, y), *sizes(x.numel()))
        ctx.save_for_backward(x, before, scale, shortcut)
        ctx.shapes = [None if number is None else number.shape for number in (scale, before, after)]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, before, scale, shortcut = ctx.saved_tensors
        if of_y.stride() != x.stride():
            of_y = torch.empty_like(x).copy_(of_y)
        of_x, of_shortcut = torch.empty_like(x), None if shortcut is None else torch.empty_like(x)
        sums = torch.empty(3, dtype=torch.float64)
        library(KERNEL).rectified_backward(
            *pointers(of_y, x, scale, before, shortcut, of_x, of_shortcut),
            ctypes.c_void_p(sums.data_ptr()),
            *sizes(x.numel()),
        )
        of_scale, of_before, of_after = (
            None if shape is None else number.to(x.dtype).reshape(shape)
            for number, shape in zip(sums, ctx.shapes, strict=True)
        )
        return of_x, of_before, of_after, of_scale, of_shortcut
