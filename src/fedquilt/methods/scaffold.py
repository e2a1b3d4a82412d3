"""SCAFFOLD: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning (2020).

Algorithm 1 with option II: every client keeps a control variate c_k, the server c. Local steps go along g − c_k + c, which
removes the clients' drift. After K steps at rate η, c_k⁺ = c_k − c + (x − y_k) / (K·η). The server moves its own by the
mean over *all* N clients: c⁺ = c + (1/N)·Σ (c_k⁺ − c_k), the sum over the cohort.

With momentum at the clients, K is counted as FedNova does: (x − y_k) / (K·η) is then still a mean of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fedquilt.algorithm.algorithm import Algorithm, add_exchange, claim
from fedquilt.algorithm.exact import ExactMean
from fedquilt.algorithm.exchange import Exchange, First, InitialFederation, Parting, Trained, Upload, Visit
from fedquilt.algorithm.parts.directions import add_given
from fedquilt.algorithm.parts.reduction import equally
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.transform import chain
from fedquilt.algorithm.updates import ClientUpdate, Cohort
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import wrappers
from fedquilt.compute.layout import Layout, Tensors

NAME = "scaffold"


@wrappers.register
def scaffold(algorithm: Algorithm) -> Algorithm:
    """Correct the drift of local training by control variates (Karimireddy 2020).

    Clients count equally, as in the paper. A variate as large as the model goes down and up besides it, which doubles the
    bytes of a round; each client keeps its own.

    >>> from fedquilt import fed_avg
    >>> [exchange.name for exchange in scaffold(fed_avg()).exchanges]
    ['scaffold']
    """
    exchange = Exchange(
        NAME,
        first_broadcast=_first_broadcast,
        begin=_begin,
        end=_end,
        uploads=_uploads,
        gather=_Variates,
        next_broadcast=_next_broadcast,
        regroup=_regroup,
        remembers=True,
    )
    if algorithm.local.keep:
        raise SpecError("scaffold: needs momentum that is reset in every round: remove keep_momentum")
    exchanging = add_exchange(algorithm, exchange)
    return claim(replace(exchanging, local=chain(add_given(NAME), algorithm.local)), NAME, weigh=equally)


def _first_broadcast(initial: InitialFederation) -> First:
    return First({"variate": torch.zeros_like(initial.model.vector)})


def _begin(visit: Visit) -> Tensors:
    """Return c − c_k, by parameter."""
    variate = (
        torch.zeros_like(visit.broadcast["variate"]) if visit.client_state is None else visit.client_state["variate"]
    )
    return visit.context.replica.layout.parameters_of(visit.broadcast["variate"] - variate)


def _end(visit: Visit, trained: Trained) -> Parting:
    """Return c_k⁺ as the client's new state, and c_k⁺ − c_k as its extra upload."""
    change = -visit.broadcast["variate"] - trained.delta / (trained.effective_steps * trained.lr)
    variate = change if visit.client_state is None else visit.client_state["variate"] + change
    return Parting(client_state={"variate": variate}, extra_upload={"variate": change})


def _uploads(layout: Layout, broadcast: Tensors) -> dict[str, Upload]:
    return {"variate": Upload((layout.size,))}


class _Variates:
    """Sums the changes of the variates, exactly, over all clients."""

    def __init__(self, cohort: Cohort) -> None:
        self._mean = ExactMean(cohort.parameters, cohort.clients)
        self._population = cohort.population
        self._heard: set[int] = set()

    def add(self, update: ClientUpdate) -> None:
        extra_upload: Tensors = update.extra_upload[NAME]  # type: ignore[assignment]
        self._mean.add(update.slot, extra_upload["variate"], 1.0)
        self._heard.add(update.client)

    def finish(self) -> Tensors:
        mean = self._mean.finish()
        assert mean is not None, "a round without updates is not applied"
        return {"change": mean * (len(self._heard) / self._population)}


def _next_broadcast(broadcast: Tensors, gathered: Tensors) -> Tensors:
    return {"variate": broadcast["variate"] + gathered["change"]}


def _regroup(state: ServerState, members: Sequence[int], client_states: Sequence[Tensors | None]) -> ServerState:
    """Make c the mean of the members' c_k: c⁺ = c + mean(c_k⁺ − c_k) would never make up for a difference."""
    total = torch.zeros_like(state.model.vector)
    for client_state in client_states:
        total += 0 if client_state is None else client_state["variate"]
    return replace(state, broadcast=state.broadcast | {NAME: {"variate": total / len(client_states)}})
