"""Sign agreement: Ozdayi, Kantarcioglu and Iyer, Improving Accuracy of Federated Learning in Non-IID Settings (2020).

§3.4, equation 4: where the clients' updates disagree on the direction, the server's *rate* is 0. The technique is that of
Ozdayi, Kantarcioglu and Gel, Defending against Backdoors in Federated Learning with Robust Learning Rate (2021), which
turns the rate's sign there instead.

The printed condition, Σ sgn(Δ) < θ, has no absolute value: it would also silence every dimension on which all clients agree
to go down. The absolute value is the default, as in the authors' earlier paper.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Literal

import torch

from fedquilt.algorithm import Algorithm, At, Exchange, State, Tensors, Transform, add_exchange
from fedquilt.algorithm.updates import ClientUpdate, Cohort
from fedquilt.base.arguments import NonNegative
from fedquilt.base.registry import wrappers

NAME = "sign_agreement"


@wrappers.register
def sign_agreement(
    algorithm: Algorithm,
    threshold: NonNegative = 2.0,
    mask: Literal["step", "update"] = "step",
    absolute: bool = True,
    flip: bool = False,
) -> Algorithm:
    """Stand still where clients disagree on the direction (Ozdayi 2020).

    - `threshold` is θ: a coordinate moves where the signs of the clients' updates add up to at least this, either way. The
      paper has two clients and θ = 2. With θ = 0 this is the wrapped method, to the bit.
    - `mask="step"` silences the server's whole step there, momentum included, as equation 4 says of the rate;
      `mask="update"` only the averaged update, before the server's momentum.
    - `absolute=False` is the condition as printed; `flip=True` goes the other way there instead of standing still.

    The server must see single updates (or the sum of their signs).

    >>> from fedquilt import fed_avg_m
    >>> [exchange.name for exchange in sign_agreement(fed_avg_m(), threshold=3).exchanges]
    ['sign_agreement']
    """
    if absolute and not threshold:
        return algorithm
    steer = partial(_masking, mask, threshold, absolute, flip)
    return add_exchange(algorithm, Exchange(NAME, gather=partial(Signs, threshold), steer=steer))


class Signs:
    """Adds up the signs of the updates, coordinate by coordinate."""

    def __init__(self, threshold: float, cohort: Cohort) -> None:
        if threshold > cohort.clients > 0:
            warnings.warn(
                f"sign_agreement: threshold = {threshold:g} cannot be reached by the {cohort.clients} clients of a round: "
                "the model does not change; use a smaller threshold or more clients",
                RuntimeWarning,
                stacklevel=2,
            )
        self._sum = torch.zeros(cohort.parameters, dtype=torch.int32)

    def add(self, update: ClientUpdate) -> None:
        """Take in one update."""
        self._sum += update.delta.sign().to(torch.int32)

    def finish(self) -> Tensors:
        """Return the sum."""
        return {"signs": self._sum}


def _masking(mask: str, threshold: float, absolute: bool, flip: bool, server: Transform) -> Transform:
    act = partial(_step, server, mask, threshold, absolute, flip)
    return Transform(server.init, act, server.rates, server.normals, momentum=server.momentum)


def _step(
    server: Transform,
    mask: str,
    threshold: float,
    absolute: bool,
    flip: bool,
    direction: Tensors,
    state: State,
    at: At,
) -> tuple[Tensors, State]:
    signs = at.given[NAME]["signs"]
    agree = (signs.abs() if absolute else signs) >= threshold
    if mask == "update":
        return server.update({name: _masked(agree, d, flip) for name, d in direction.items()}, state, at)
    step, state = server.update(direction, state, at)
    return {name: _masked(agree, s, flip) for name, s in step.items()}, state


def _masked(agree: torch.Tensor, values: torch.Tensor, flip: bool) -> torch.Tensor:
    # `where` and not a product: 0 · ∞ is not a number.
    return torch.where(agree, values, -values if flip else torch.zeros_like(values))
