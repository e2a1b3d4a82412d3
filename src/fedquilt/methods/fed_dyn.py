"""FedDyn: Acar et al., Federated Learning Based on Dynamic Regularization (2021).

Algorithm 1: client k minimises L_k(θ) − ⟨g_k, θ⟩ + (α/2)·‖θ − θ_t‖², and then sets g_k ← g_k − α(θ_k − θ_t). The server
keeps h ← h − (α/N)·Σ (θ_k − θ_t), the sum over the cohort, N the number of all clients, and moves to mean(θ_k) − h/α.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from fedquilt.algorithm.algorithm import Algorithm, add_exchange, claim
from fedquilt.algorithm.exchange import Exchange, Parting, Trained, Visit
from fedquilt.algorithm.parts.descent import sgd
from fedquilt.algorithm.parts.directions import add_given, pull_to_start
from fedquilt.algorithm.parts.reduction import WeightedMean, equally
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.transform import At, Transform, chain
from fedquilt.algorithm.updates import ClientUpdate, Cohort
from fedquilt.base.arguments import Positive
from fedquilt.base.errors import SpecError
from fedquilt.base.records import describe
from fedquilt.base.registry import wrappers
from fedquilt.compute.layout import State, Tensors

NAME = "fed_dyn"


@wrappers.register
def fed_dyn(algorithm: Algorithm, alpha: Positive = 0.01) -> Algorithm:
    """Regularise clients so that their optima agree with the server's (Acar 2021).

    `alpha` is α, from 0.001 to 0.1 in the paper. Clients count equally, as there. Nothing is sent besides the model; a
    client keeps one vector as large as it, the server another.

    >>> from fedquilt import fed_avg
    >>> fed_dyn(fed_avg(), alpha=0.1).applied.claims[0]
    ('weigh', 'fed_dyn')
    """
    end, regroup = partial(_end, alpha), partial(_regroup, alpha)
    exchanging = add_exchange(
        algorithm, Exchange(NAME, begin=_begin, end=end, gather=_Share, regroup=regroup, remembers=True)
    )
    local = chain(add_given(NAME), pull_to_start(alpha), algorithm.local)
    # h is made of the mean of the updates: another reduction would break it.
    server = Transform(_init, _step)
    regularised = claim(replace(exchanging, local=local), NAME, weigh=equally, reduce=WeightedMean, server=server)
    if describe(algorithm.server) != describe(sgd(1.0)):
        raise SpecError(
            "fed_dyn has its own server step, which would replace the wrapped method's: apply wrappers "
            "that change the server's step after fed_dyn"
        )
    return regularised


def _begin(visit: Visit) -> Tensors:
    """Return −g_k, by parameter."""
    vector = visit.context.start.vector
    linear = torch.zeros_like(vector) if visit.client_state is None else -visit.client_state["linear"]
    return visit.context.replica.layout.parameters_of(linear)


def _end(alpha: float, visit: Visit, trained: Trained) -> Parting:
    """Return g_k − α(θ_k − θ_t) as the client's new state."""
    before = torch.zeros_like(trained.delta) if visit.client_state is None else visit.client_state["linear"]
    return Parting(client_state={"linear": before - alpha * trained.delta})


def _regroup(
    alpha: float, state: ServerState, members: Sequence[int], client_states: Sequence[Tensors | None]
) -> ServerState:
    """Make h the mean of the members' g_k, as it is of all clients' in one group."""
    total = torch.zeros_like(state.model.vector)
    for client_state in client_states:
        total += 0 if client_state is None else client_state["linear"]
    return replace(state, optimiser={"model": total / (alpha * len(client_states))})


class _Share:
    """Counts which share of all clients was heard."""

    def __init__(self, cohort: Cohort) -> None:
        self._heard: set[int] = set()
        self._population = cohort.population

    def add(self, update: ClientUpdate) -> None:
        self._heard.add(update.client)

    def finish(self) -> Tensors:
        return {"share": torch.tensor(len(self._heard) / self._population)}


def _init(params: Tensors) -> State:
    return {name: torch.zeros_like(value) for name, value in params.items()}


def _step(direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    """Step by mean(Δ) − h/α; the state is h/α, and the direction −mean(Δ)."""
    share = at.given[NAME]["share"]
    after = {name: state[name] + share * d for name, d in direction.items()}  # type: ignore[operator]
    return {name: -d - after[name] for name, d in direction.items()}, dict(after)
