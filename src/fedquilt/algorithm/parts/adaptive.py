"""Adaptive descent: Reddi et al., Adaptive Federated Optimization (2021), Algorithm 2.

With g the direction (at the server −Δ), m ← β₁m + (1 − β₁)g and

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

from fedquilt.algorithm.transform import At, Transform
from fedquilt.base.schedule import Value, scheduled
from fedquilt.compute.layout import State, Tensors

Second = Callable[[Tensor, Tensor], Tensor]
"""(v, g²) -> the next v."""


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
