"""A layer for images and its kernel, side by side."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import fedquilt
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.compute.kernels.layers import with_kernels
from fedquilt.data.data import Data
from fedquilt.experiment.result import Result
from fedquilt.partition.partition import Partition


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


def thrice(
    module: nn.Module, data: Data, who: Partition, method: Algorithm, rounds: int
) -> tuple[Result, Result, Result]:
    """Train eagerly, by kernels, and by kernels with two workers."""
    engines = (
        fedquilt.inline(),
        fedquilt.inline(compute="compiled"),
        fedquilt.processes(workers=2, compute="compiled"),
    )
    plain, ours, worked = (fedquilt.train(module, data, who, method, rounds, engine=engine) for engine in engines)
    return plain, ours, worked
