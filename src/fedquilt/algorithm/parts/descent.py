"""Stochastic gradient descent as a chain: weight decay, momentum, a step against the gradient.

The arithmetic is that of `torch.optim.SGD`: the decay is added to the gradient where there is one, momentum has no damping
(v ← βv + g; Nesterov steps along g + βv), and the rate multiplies the step, not the buffer.
"""

from __future__ import annotations

from functools import partial

import torch

from fedquilt.algorithm.transform import At, Transform, chain, stateless
from fedquilt.base.schedule import Value, scheduled
from fedquilt.compute.layout import State, Tensors


def sgd(lr: Value, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> Transform:
    """Return gradient descent; a coefficient of zero leaves its part out.

    >>> sgd(0.1).rates
    (Schedule(initial=0.1, factor=1.0, every=1, least=0.0, most=inf),)
    """
    parts = []
    if weight_decay:
        parts.append(add_weight_decay(weight_decay))
    if momentum:
        parts.append(accumulate(momentum, nesterov))
    return chain(*parts, descend(lr))


def descend(lr: Value) -> Transform:
    """Step against the direction: −lr · g."""
    return Transform(stateless, _descend, rates=(scheduled(lr),), fused=_descended)


def _descend(direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    down = -at.rates[0]
    return {name: g * down for name, g in direction.items()}, state


def _descended(direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    down = -at.rates[0]
    if at.in_place:
        return {name: p.addcmul_(direction[name], down) for name, p in at.params.items()}, state
    return {name: torch.addcmul(p, direction[name], down) for name, p in at.params.items()}, state


def add_weight_decay(coefficient: float) -> Transform:
    """Add the gradient of (coefficient / 2) · ‖w‖², but for parameters that the loss does not depend on."""
    return Transform(stateless, partial(_add_weight_decay, coefficient))


def _add_weight_decay(coefficient: float, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    added = {
        name: g if name in at.unused else g.add(at.params[name], alpha=coefficient) for name, g in direction.items()
    }
    return added, state


def accumulate(momentum: float, nesterov: bool = False) -> Transform:
    """Replace the direction by its running sum v ← βv + g, or by g + βv (Nesterov)."""
    return Transform(_zeros, partial(_accumulate, momentum, nesterov), momentum=momentum)


def _zeros(params: Tensors) -> State:
    return {name: value.new_zeros(value.shape) for name, value in params.items()}


def _accumulate(momentum: float, nesterov: bool, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    velocity = {name: state[name] * momentum + g for name, g in direction.items()}  # type: ignore[operator]
    if nesterov:
        return {name: g.add(velocity[name], alpha=momentum) for name, g in direction.items()}, dict(velocity)
    return velocity, dict(velocity)
