"""A layer for images and its kernel, side by side."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedquilt.compute.kernels.layers import with_kernels


def last(x: Tensor) -> Tensor:
    """Return images with their channels last, as kernels take them."""
    return x.contiguous(memory_format=torch.channels_last)


def both(
    module: nn.Module, x: Tensor, weights: Callable[[int], Tensor], channels_last: bool = False
) -> list[list[Tensor]]:
    """Run a model and its kernel: outputs, and gradients of the input and of the parameters; `weights` are the outputs'."""
    found = []
    for each in (module, with_kernels(module, channels_last)):
        own = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        out = each(own)
        total = (out * weights(out.numel()).view_as(out)).sum()
        found.append([out.detach(), *torch.autograd.grad(total, [own, *each.parameters()])])
    return found
