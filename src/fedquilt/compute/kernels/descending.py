"""Large linear and embedding layers that take their own step of gradient descent during the backward pass.

A plain step needs the gradient of such a layer for one thing only, W ← W − η·dYᵀX. Taken as one product that adds to W, no
gradient is written, which for a softmax over 10,000 words saves as much memory traffic as the product itself. And of an
embedding, only the rows of the words that occur are touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fedquilt.compute.kernels.build import usable

LARGE = 2**20
"""Weights of a layer from which on writing its gradient is worth avoiding: more than a core's own cache holds."""


@dataclass(eq=False)
class OwnSteps:
    """What the layers of a model share: the rate at which they descend, if they do now, and which of them have.

    A layer that is called twice in a step leaves it to the usual way: its gradient is a sum.
    """

    rate: float | None = None
    calls: Counter[int] = field(default_factory=Counter)
    taken: set[int] = field(default_factory=set)

    def called(self, *parameters: Tensor | None) -> None:
        """Count a call of a layer with these parameters."""
        self.calls.update(id(each) for each in parameters if each is not None)

    def take(self, parameter: Tensor) -> bool:
        """Say whether a layer is to take the step of a parameter now, and note that it has."""
        alone = self.rate is not None and self.calls[id(parameter)] == 1
        if alone:
            self.taken.add(id(parameter))
        return alone

    def ended(self) -> set[int]:
        """Begin a new step; return the parameters, by identity, that have taken the last one."""
        taken, self.taken = self.taken, set()
        self.calls.clear()
        return taken


class DescendingLinear(nn.Linear):
    """`nn.Linear` that takes its own step where its `steps` have a rate."""

    steps: OwnSteps

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return xWᵀ + b."""
        if self.steps.rate is None or not input.numel() or not usable(input, self.weight, self.bias):
            return super().forward(input)
        self.steps.called(self.weight, self.bias)
        return _Linear.apply(input, self.weight, self.bias, self.steps)  # type: ignore[no-any-return,no-untyped-call]


class DescendingEmbedding(nn.Embedding):
    """`nn.Embedding` that takes its own step where its `steps` have a rate."""

    steps: OwnSteps

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return a row of the weight for every number."""
        if self.steps.rate is None or not usable(self.weight):
            return super().forward(input)
        self.steps.called(self.weight)
        return _Embedded.apply(self.weight, input, self.steps)  # type: ignore[no-any-return,no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, steps: OwnSteps) -> Tensor:
        ctx.steps, ctx.parameters = steps, (weight, bias)
        ctx.save_for_backward(x, weight)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, old = ctx.saved_tensors
        (weight, bias), rows = ctx.parameters, of_y.flatten(0, -2)
        of_x = of_y @ old if ctx.needs_input_grad[0] else None
        of_weight = of_bias = None
        if ctx.needs_input_grad[1]:
            if ctx.steps.take(weight):
                weight.detach().addmm_(rows.T, x.flatten(0, -2), alpha=-ctx.steps.rate)
            else:
                of_weight = rows.T @ x.flatten(0, -2)
        if ctx.needs_input_grad[2]:
            if ctx.steps.take(bias):
                bias.detach().add_(rows.sum(0), alpha=-ctx.steps.rate)
            else:
                of_bias = rows.sum(0)
        return of_x, of_weight, of_bias, None


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
        where, rows = numbers.flatten(), of_rows.reshape(-1, weight.shape[1])
        if ctx.steps.take(weight):
            weight.detach().index_add_(0, where, rows, alpha=-ctx.steps.rate)
            return None, None, None
        return torch.zeros_like(weight).index_add_(0, where, rows), None, None


def descending(part: nn.Module) -> type[nn.Module] | None:
    """Return the class of a layer that takes its own steps, if it is large enough, or None.

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


def own_steps(module: nn.Module) -> OwnSteps | None:
    """Return what the layers of a model share that can take their own steps, or None if it has no such layers."""
    found = (part.steps for part in module.modules() if isinstance(part, DescendingLinear | DescendingEmbedding))
    return next(found, None)


@contextmanager
def taking_own_steps(module: nn.Module, rate: float | None) -> Iterator[OwnSteps | None]:
    """Let large layers of a model descend by themselves at a rate, if one is given and there are such layers."""
    steps = own_steps(module) if rate is not None else None
    if steps is None:
        yield None
        return
    steps.rate = rate
    steps.ended()
    try:
        yield steps
    finally:
        steps.rate = None
        steps.ended()
