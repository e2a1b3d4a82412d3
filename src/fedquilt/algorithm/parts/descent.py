"""Gradient descent, plain and adaptive.

Plain, a chain: weight decay, momentum, a step against the gradient. The arithmetic is that of `torch.optim.SGD`: the decay
is added to the gradient where there is one, momentum has no damping (v ← βv + g; Nesterov steps along g + βv), and the rate
multiplies the step, not the buffer.

Adaptive: Reddi et al., Adaptive Federated Optimization (2021), Algorithm 2. With g the direction (at the server −Δ),
m ← β₁m + (1 − β₁)g and

- Adagrad: v ← v + g²
- Yogi: v ← v − (1 − β₂)·g²·sign(v − g²)
- Adam: v ← β₂v + (1 − β₂)g²

the step is −η·m / (√v + τ). There is no bias correction; m starts at 0 and v at τ². `torch.optim.Adam` differs in both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fedquilt.algorithm.transform import At, Transform, chain, stateless
from fedquilt.base.schedule import Value, scheduled
from fedquilt.compute.layout import State, Tensors

Second = Callable[[Tensor, Tensor], Tensor]
"""(v, g²) -> the next v."""


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


def adagrad(lr: Value, beta1: float, tau: float) -> Transform:
    """Divide by the root of the sum of all squares so far."""
    return _adaptive(lr, beta1, tau, _adagrad)


def adam(lr: Value, beta1: float, beta2: float, tau: float) -> Transform:
    """Divide by the root of the running mean of the squares.

    >>> w = {"w": torch.tensor([0.0])}
    >>> descent = adam(0.1, beta1=0.0, beta2=0.0, tau=0.5)
    >>> step, _ = descent.update({"w": torch.tensor([1.5])}, descent.init(w), At(w, w, [torch.tensor(0.1)]))
    >>> step["w"]  # −0.1 · 1.5 / (1.5 + 0.5)
    tensor([-0.0750])
    """
    return _adaptive(lr, beta1, tau, partial(_adam, beta2))


def yogi(lr: Value, beta1: float, beta2: float, tau: float) -> Transform:
    """Divide by a root like Adam's, where v moves towards g² by (1 − β₂)·g² at most."""
    return _adaptive(lr, beta1, tau, partial(_yogi, beta2))


def _adaptive(lr: Value, beta1: float, tau: float, second: Second) -> Transform:
    return Transform(partial(_init, tau), partial(_update, beta1, tau, second), rates=(scheduled(lr),))


def _adagrad(v: Tensor, square: Tensor) -> Tensor:
    return v + square


def _adam(beta2: float, v: Tensor, square: Tensor) -> Tensor:
    return v * beta2 + square * (1 - beta2)


def _yogi(beta2: float, v: Tensor, square: Tensor) -> Tensor:
    return v - square * torch.sign(v - square) * (1 - beta2)


def _init(tau: float, params: Tensors) -> State:
    return {
        "m": {name: torch.zeros_like(p) for name, p in params.items()},
        "v": {name: torch.full_like(p, tau**2) for name, p in params.items()},
    }


def _update(
    beta1: float, tau: float, second: Second, direction: Tensors, state: State, at: At
) -> tuple[Tensors, State]:
    before: dict[str, Tensors] = state  # type: ignore[assignment]
    m = {name: before["m"][name] * beta1 + g * (1 - beta1) for name, g in direction.items()}
    v = {name: second(before["v"][name], g * g) for name, g in direction.items()}
    down = -at.rates[0]
    return {name: m[name] * down / (v[name].sqrt() + tau) for name in direction}, {"m": dict(m), "v": dict(v)}
