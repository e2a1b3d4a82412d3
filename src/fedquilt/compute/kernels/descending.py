"""Large linear and embedding layers whose plain step is taken without writing a gradient.

A plain step needs the gradient of such a layer for one thing only, W ← W − η·dYᵀX. The backward pass leaves dY and X, and
the step is one product that is added to W. For a softmax over 10,000 words that saves as much memory traffic as the product
itself has. Of an embedding, only the rows of the words that occur are touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fedquilt.compute.kernels.build import usable
from fedquilt.compute.kernels.linear import linear

LARGE = 2**20
"""Weights of a layer from which on writing its gradient is worth avoiding: more than a core's own cache holds."""


class Factors(NamedTuple):
    """What a layer's backward pass leaves of a parameter's gradient: dYᵀX, or the rows dY at the places X, or Σ dY."""

    parameter: Tensor
    of_y: Tensor
    x: Tensor | None


@dataclass(eq=False)
class OwnSteps:
    """What the large layers of a model share: the rate of their steps, and what the backward pass has left for them.

    Without a rate, layers return their gradients as usual. A parameter may be used several times, also outside of such
    layers: steps add up.
    """

    rate: float | None = None
    left: list[Factors] = field(default_factory=list)

    def forget(self) -> None:
        """Drop what was left: by a gradient that a model takes within its forward pass."""
        self.left.clear()

    @torch.no_grad()
    def take(self) -> set[int]:
        """Take the steps, and return whose they were, by identity."""
        assert self.rate is not None
        for parameter, of_y, x in self.left:
            if x is None:
                parameter.add_(of_y.sum(0), alpha=-self.rate)
            elif x.is_floating_point():
                parameter.addmm_(of_y.T, x, alpha=-self.rate)
            else:
                parameter.index_add_(0, x, of_y, alpha=-self.rate)
        taken = {id(each.parameter) for each in self.left}
        self.left.clear()
        return taken


class DescendingLinear(nn.Linear):
    """`nn.Linear` whose gradient is left in factors where its `steps` have a rate."""

    steps: OwnSteps

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return xWᵀ + b."""
        if self.steps.rate is None or not usable(input, self.weight, self.bias):
            return super().forward(input)
        return _Linear.apply(input, self.weight, self.bias, self.steps)  # type: ignore[no-any-return,no-untyped-call]


class DescendingEmbedding(nn.Embedding):
    """`nn.Embedding` whose gradient is left in factors where its `steps` have a rate."""

    steps: OwnSteps

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return a row of the weight for every number."""
        if self.steps.rate is None or not usable(self.weight):
            return super().forward(input)
        return _Embedded.apply(self.weight, input, self.steps)  # type: ignore[no-any-return,no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, steps: OwnSteps) -> Tensor:
        ctx.steps, ctx.parameters = steps, (weight, bias)
        ctx.save_for_backward(x, weight)
        return linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, old = ctx.saved_tensors
        weight, bias = ctx.parameters
        rows = of_y.reshape(-1, len(old))
        if ctx.needs_input_grad[1]:
            ctx.steps.left.append(Factors(weight, rows, x.reshape(-1, old.shape[1])))
        if ctx.needs_input_grad[2]:
            ctx.steps.left.append(Factors(bias, rows, None))
        return of_y @ old if ctx.needs_input_grad[0] else None, None, None, None


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, numbers: Tensor, steps: OwnSteps) -> Tensor:
        ctx.steps, ctx.weight = steps, weight
        ctx.save_for_backward(numbers)
        return nn.functional.embedding(numbers, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_rows: Tensor) -> tuple[Tensor | None, ...]:
        (numbers,), weight = ctx.saved_tensors, ctx.weight
        ctx.steps.left.append(Factors(weight, of_rows.reshape(-1, weight.shape[1]), numbers.flatten()))
        return None, None, None


def descending(part: nn.Module) -> type[nn.Module] | None:
    """Return the class that stands for a layer whose step is taken without a gradient, if it is large enough, or None.

    >>> descending(nn.Linear(1024, 1024)), descending(nn.Linear(10, 10))
    (<class 'fedquilt.compute.kernels.descending.DescendingLinear'>, None)
    """
    if type(part) not in {nn.Linear, nn.Embedding, DescendingLinear, DescendingEmbedding}:
        return None
    assert isinstance(part, nn.Linear | nn.Embedding)
    if part.weight.numel() < LARGE:
        return None
    if isinstance(part, nn.Linear):
        return DescendingLinear
    plain = part.padding_idx is None and part.max_norm is None and not part.scale_grad_by_freq and not part.sparse
    return DescendingEmbedding if plain else None


@contextmanager
def taking_own_steps(module: nn.Module, rate: float | None) -> Iterator[OwnSteps | None]:
    """Let the large layers of a model leave their gradients in factors, if a rate is given and there are such layers."""
    large = (part.steps for part in module.modules() if isinstance(part, DescendingLinear | DescendingEmbedding))
    steps = next(large, None) if rate is not None else None
    if steps is None:
        yield None
        return
    steps.rate = rate
    steps.forget()
    try:
        yield steps
    finally:
        steps.rate = None
        steps.forget()
