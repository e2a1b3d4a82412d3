"""The one local step: everything that trains a client's model goes through it.

What it computes is a pure function of values: (parameters, carried values, batch) -> (parameters, carried values, loss).
A mode decides how it is executed, and nothing in a method, loss or transform may depend on which:

- `FUNCTIONAL` changes nothing that it is given; it can be mapped over many clients (`torch.func.vmap`) and compiled.
- `EAGER` works in place on a module's own parameters and buffers, which saves the copies and the calls that cost small
  models most of their time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedquilt.algorithm.loss import Loss
from fedquilt.algorithm.penalty import Features, Penalty
from fedquilt.algorithm.transform import At, Transform
from fedquilt.compute.kernels.descending import OwnSteps
from fedquilt.compute.layout import State, Tensors

Call = Callable[[nn.Module, Tensors, Tensors, Tensor], tuple[Tensor, Tensors]]
"""(module, parameters, buffers, input) -> output, and the buffers after it."""

Objective = Callable[[Tensors], tuple[Tensor, tuple[Tensor, Tensors]]]
"""Parameters -> what is minimised; and the loss of the data, which leaves out penalties, and the buffers after it."""

Gradient = Callable[[Objective, Tensors], tuple[Tensors, Tensor, Tensors]]
"""(objective, parameters) -> gradients of those that have one, the loss of the data, and the buffers after it."""


class Batch(NamedTuple):
    """Examples as the model takes them, their targets, and their weights (None: all 1).

    `mask` is 0 for padding, which stands for no example at all (None: there is none).
    """

    x: Tensor
    y: Tensor
    weights: Tensor | None = None
    mask: Tensor | None = None


class Carried(NamedTuple):
    """What a client's training carries from step to step besides the parameters."""

    optimiser: State
    buffers: Tensors


@dataclass(frozen=True)
class Mode:
    """How a step is executed."""

    call: Call
    gradient: Gradient
    in_place: bool


@dataclass(frozen=True)
class Recipe:
    """The fixed parts of a step: model, loss, what turns gradients into a step, how it is executed, and penalties.

    `autocast` is the device whose autocast to bfloat16 the model runs under, if it does. `unused` are the parameters that
    the loss does not depend on, as `unused_parameters` finds them: mapped and compiled steps cannot tell. `own_steps` takes
    the steps of large layers, whose gradients are not written.
    """

    module: nn.Module
    loss: Loss
    local: Transform
    mode: Mode
    penalties: tuple[tuple[Penalty, Features], ...] = ()
    autocast: str | None = None
    unused: frozenset[str] = frozenset()
    own_steps: OwnSteps | None = None


def local_step(recipe: Recipe, carried: Carried, batch: Batch, at: At) -> tuple[Tensors, Carried, Tensor]:
    """Take one step of local training from `at.params`. How it is executed is up to the recipe."""
    params, unused = at.params, recipe.unused
    objective = partial(_objective, recipe, carried.buffers, batch, at.given)
    gradients, value, buffers = recipe.mode.gradient(objective, params)
    if recipe.own_steps is not None:
        taken = recipe.own_steps.take()
        params = {name: p for name, p in params.items() if id(p) not in taken or name in gradients}
    if len(gradients) < len(params):
        unused = frozenset(params.keys() - gradients.keys())
        gradients = {name: gradients[name] if name in gradients else torch.zeros_like(p) for name, p in params.items()}
    with torch.no_grad():
        left = At(params, at.start, at.rates, at.normals, recipe.mode.in_place, at.given, unused)
        stepped, optimiser = recipe.local.apply(gradients, carried.optimiser, left)
    return stepped if len(stepped) == len(at.params) else {**at.params, **stepped}, Carried(optimiser, buffers), value


def unused_parameters(recipe: Recipe, buffers: Tensors, batch: Batch, at: At) -> frozenset[str]:
    """Return the names of the parameters that the loss does not depend on, such as those of a branch that is not taken.

    It is a property of model and loss, so that one batch shows it.
    """
    leaves = {name: p.detach().clone().requires_grad_() for name, p in at.params.items()}
    gradients, _, _ = _by_autograd(partial(_objective, recipe, buffers, batch, at.given), leaves)
    return frozenset(at.params.keys() - gradients.keys())


def _objective(
    recipe: Recipe, buffers: Tensors, batch: Batch, given: Mapping[str, Tensors], params: Tensors
) -> tuple[Tensor, tuple[Tensor, Tensors]]:
    """Return what is minimised, the loss of the data alone, and the buffers afterwards."""
    outputs, after = forward(recipe, params, buffers, batch.x)
    if recipe.own_steps is not None:
        recipe.own_steps.forget()
    loss = recipe.loss(outputs, batch.y, batch.weights, batch.mask)
    total = loss
    for penalty, features in recipe.penalties:
        total = total + penalty.value(features.seen(params, given, batch.mask))
    return total, (loss.detach(), after)


def forward(recipe: Recipe, params: Tensors, buffers: Tensors, x: Tensor) -> tuple[Tensor, Tensors]:
    """Run the model on examples, in the precision of the recipe; return its outputs in float32, and its buffers."""
    if recipe.autocast is None:
        return recipe.mode.call(recipe.module, params, buffers, x)
    with torch.autocast(recipe.autocast, dtype=torch.bfloat16):
        outputs, buffers = recipe.mode.call(recipe.module, params, buffers, x)
    return outputs.float(), buffers


def _call_functional(module: nn.Module, params: Tensors, buffers: Tensors, x: Tensor) -> tuple[Tensor, Tensors]:
    tensors = params | {name: buffer.clone() for name, buffer in buffers.items()}
    # A module may assign to its buffers instead of writing into them: functional_call puts the new ones into `tensors`.
    outputs = functional_call(module, tensors, (x,))
    return outputs, {name: tensors[name].detach() for name in buffers}


def _call_module(module: nn.Module, params: Tensors, buffers: Tensors, x: Tensor) -> tuple[Tensor, Tensors]:
    return module(x), buffers


def _by_func(objective: Objective, params: Tensors) -> tuple[Tensors, Tensor, Tensors]:
    gradients, (_, (value, buffers)) = torch.func.grad_and_value(objective, has_aux=True)(params)
    return gradients, value, buffers


def _by_autograd(objective: Objective, params: Tensors) -> tuple[Tensors, Tensor, Tensors]:
    total, (value, buffers) = objective(params)
    gradients = torch.autograd.grad(total, tuple(params.values()), allow_unused=True)
    found = {name: gradient for name, gradient in zip(params, gradients, strict=True) if gradient is not None}
    return found, value, buffers


FUNCTIONAL = Mode(_call_functional, _by_func, in_place=False)
EAGER = Mode(_call_module, _by_autograd, in_place=True)
