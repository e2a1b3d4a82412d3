"""Projected gradient descent with noise.

Ozdayi, Kantarcioglu and Iyer, Improving Accuracy of Federated Learning in Non-IID Settings (2020).

§3.2: after every local step the model is projected to an L2 ball of radius M; and noise is added to the gradients.
"""

from __future__ import annotations

from dataclasses import replace

from fedquilt.algorithm import Algorithm, chain
from fedquilt.algorithm.parts.directions import Centre, add_noise, project_to_ball
from fedquilt.base.arguments import NonNegative, PositiveOrInfinite
from fedquilt.base.registry import wrappers


@wrappers.register
def projected(algorithm: Algorithm, radius: PositiveOrInfinite = 3.0, centre: Centre = "origin") -> Algorithm:
    """Project the local model to an L2 ball after every step (Ozdayi 2020).

    `radius` is the paper's M; `inf` leaves the method as it is. The ball is around the origin, as the paper prints it, or,
    with `centre="start"`, around the model that the round started from.

    >>> from fedquilt import fed_avg
    >>> base = fed_avg()
    >>> projected(base, radius=float("inf")) is base
    True
    """
    if radius == float("inf"):
        return algorithm
    return replace(algorithm, local=chain(algorithm.local, project_to_ball(radius, centre)))


@wrappers.register
def gradient_noise(algorithm: Algorithm, std: NonNegative = 1e-4) -> Algorithm:
    """Add Gaussian noise to every local gradient (Ozdayi 2020).

    With a `std` of zero this is the wrapped method, to the bit.

    >>> from fedquilt import fed_avg
    >>> base = fed_avg()
    >>> gradient_noise(base, std=0.0) is base
    True
    """
    return replace(algorithm, local=chain(add_noise(std), algorithm.local)) if std else algorithm
