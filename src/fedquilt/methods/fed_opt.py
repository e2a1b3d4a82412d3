"""Adaptive optimisers at the server: FedAdagrad, FedYogi and FedAdam.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan, Adaptive Federated Optimization (2021), Algorithm 2.

With Δ the cohort's averaged update, m ← β₁m + (1 − β₁)Δ, an own rule for v, and x ← x + η·m / (√v + τ). There is no bias
correction, and v starts at τ². Buffers of normalisation layers are averaged as ever.
"""

from __future__ import annotations

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.descent import adagrad, adam, yogi
from fedquilt.base.arguments import Momentum, Positive, Rate
from fedquilt.base.registry import wrappers
from fedquilt.base.schedule import scheduled


@wrappers.register
def fed_adagrad(algorithm: Algorithm, server_lr: Rate = 0.01, beta1: Momentum = 0.9, tau: Positive = 1e-3) -> Algorithm:
    """Let the server descend by Adagrad: v ← v + Δ² (Reddi 2021).

    `server_lr` is η and may change over rounds; `tau` is τ, the degree of adaptivity: the larger, the closer to plain
    momentum. `beta1=0` leaves momentum out.

    >>> from fedquilt import fed_avg
    >>> fed_adagrad(fed_avg(), server_lr=0.1).applied.claims
    (('server', 'fed_adagrad'),)
    """
    return claim(algorithm, "fed_adagrad", server=adagrad(scheduled(server_lr), beta1, tau))


@wrappers.register
def fed_yogi(
    algorithm: Algorithm,
    server_lr: Rate = 0.01,
    beta1: Momentum = 0.9,
    beta2: Momentum = 0.99,
    tau: Positive = 1e-3,
) -> Algorithm:
    """Let the server descend by Yogi: v ← v − (1 − β₂)·Δ²·sign(v − Δ²) (Reddi 2021).

    `server_lr` is η and may change over rounds; `beta2` is how slowly v follows; `tau` is τ, the degree of adaptivity: the
    larger, the closer to plain momentum.

    >>> from fedquilt import fed_avg
    >>> fed_yogi(fed_avg(), server_lr=0.1).applied.claims
    (('server', 'fed_yogi'),)
    """
    return claim(algorithm, "fed_yogi", server=yogi(scheduled(server_lr), beta1, beta2, tau))


@wrappers.register
def fed_adam(
    algorithm: Algorithm,
    server_lr: Rate = 0.01,
    beta1: Momentum = 0.9,
    beta2: Momentum = 0.99,
    tau: Positive = 1e-3,
) -> Algorithm:
    """Let the server descend by Adam: v ← β₂v + (1 − β₂)Δ² (Reddi 2021).

    `server_lr` is η and may change over rounds; `beta2` is how slowly v follows; `tau` is τ, the degree of adaptivity: the
    larger, the closer to plain momentum.

    >>> from fedquilt import fed_avg
    >>> fed_adam(fed_avg(), server_lr={"initial": 0.1, "factor": 0.99}).applied.claims
    (('server', 'fed_adam'),)
    """
    return claim(algorithm, "fed_adam", server=adam(scheduled(server_lr), beta1, beta2, tau))
