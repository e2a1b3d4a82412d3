"""FedAvgR: Wei, Li, Liu and Wang, Federated Learning for Non-IID Data: From Theory to Algorithm (2022).

Algorithm 1 and §4.1: every local step minimises ℓ + α‖W‖_* + β‖φ(X)‖_F + γ·MMD[p̂_k^φ, p̂^φ], with W the classifier and φ
the features. p̂_k^φ is a Gaussian estimate of client k's features, uploaded once before the first round (server lines 2–6)
and after every local training; p̂^φ is their mixture with weights n_k / n (line 6). A client draws Z from it once per round
(client line 1) and compares the features of each batch with Z (line 4); Z carries no gradient.

As the paper defines it, MMD is the distance of two means, ‖E φ(x) − E z‖: it does not see whether distributions with equal
means differ. The estimate after each epoch (line 8) is used only after the last one, so it is made only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from fedquilt.algorithm.algorithm import Algorithm, add_exchange
from fedquilt.algorithm.exchange import Exchange, First, InitialFederation, Parting, Trained, Upload, Visit
from fedquilt.algorithm.parts.features import Estimator, FeaturePenalty, Norm, draw, estimate
from fedquilt.algorithm.penalty import Penalty, classifier_layer, features_of
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.updates import ClientUpdate, Cohort
from fedquilt.base.arguments import NonNegative, Size
from fedquilt.base.registry import wrappers
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.compute.layout import Layout, ModelState, State, Tensors
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data

NAME = "fed_avg_r"

FARTHEST = 2.0**40
"""Features may be this large: their squares must be numbers."""


@wrappers.register
def fed_avg_r(
    algorithm: Algorithm,
    alpha: NonNegative = 1e-6,
    beta: NonNegative = 1e-6,
    gamma: NonNegative = 1e-2,
    norm: Norm = "batch",
    squared: bool = False,
    estimator: Estimator = "diagonal",
    samples: Size = 100,
    layer: str | None = None,
) -> Algorithm:
    """Regularise classifier and features, and pull clients' features together (Wei 2022).

    - `alpha`, `beta` and `gamma` are α (trace norm of the classifier), β (norm of the features) and γ (distance of the
      client's features from all clients'). Each is left out where it is 0; with all of them 0 this is the wrapped method.
    - `norm`: ‖φ(X)‖_F of the batch, as Algorithm 1 prints it, or an estimate of that of all of the client's data, as
      the objective in §4.1 says: the batch's, times √(n_k / batch size).
    - `squared` takes MMD² instead of MMD, which is smooth where the means agree.
    - `estimator`: a Gaussian with a diagonal or a full covariance; the paper does not say which. `samples` is how many Z
      are drawn.
    - `layer` names the model's classifier, a linear layer, where the model does not name it itself by an attribute
      `classifier_layer`. Features are what that layer is given.

    With γ > 0 the mean and covariance of each client's features leave the client, and are sent to all clients.

    >>> from fedquilt import fed_avg
    >>> base = fed_avg()
    >>> fed_avg_r(base, alpha=0, beta=0, gamma=0) is base
    True
    """
    if not (alpha or beta or gamma):
        return algorithm
    penalty = Penalty(NAME, FeaturePenalty(NAME, alpha, beta, gamma, norm, squared), layer)
    regularised = replace(algorithm, penalties=(*algorithm.penalties, penalty))
    begin = partial(_begin, gamma, samples, estimator)
    if not gamma:
        needed = beta and norm == "client"
        return add_exchange(regularised, Exchange(NAME, begin=begin)) if needed else regularised
    end = partial(_end, estimator, layer)
    exchange = Exchange(
        NAME,
        first_upload=partial(_first_upload, estimator, layer),
        first_broadcast=_first_broadcast,
        begin=begin,
        end=end,
        uploads=_uploads,
        gather=_Distributions,
        next_broadcast=_next_broadcast,
        regroup=_regroup,
    )
    return add_exchange(regularised, exchange)


def _first_upload(estimator: Estimator, layer: str | None, visit: Visit) -> Tensors:
    """Estimate the client's feature distribution with the first model."""
    context, data = visit.context, visit.data
    return _estimated(estimator, layer, context.replica, context.start, data.data, data.rows)


def _first_broadcast(initial: InitialFederation) -> First:
    """Broadcast the feature distributions of all clients, and the weights of their mixture."""
    sizes, uploads = initial.population.sizes, initial.uploads
    first = next(iter(uploads.values()))
    means = torch.zeros(len(sizes), len(first["mean"]))
    scales = torch.zeros(len(sizes), len(first["scale"]))
    for client, estimated in uploads.items():
        means[client], scales[client] = estimated["mean"], estimated["scale"]
    weights = torch.from_numpy(sizes / sizes.sum()).float()
    uploaded = sum(tensor.nbytes for estimated in uploads.values() for tensor in estimated.values())
    return First({"means": means, "scales": scales, "weights": weights}, uploaded, asked=len(uploads))


def _begin(gamma: float, samples: int, estimator: Estimator, visit: Visit) -> Tensors:
    """Draw Z from the mixture of all clients' feature distributions."""
    given = {"examples": torch.tensor(float(len(visit.data)))}
    if not gamma:
        return given
    context, mixture = visit.context, visit.broadcast
    rng = generator(context.seed, "features", *context.key)
    return given | {"drawn": draw(mixture["means"], mixture["scales"], mixture["weights"], samples, rng, estimator)}


def _end(estimator: Estimator, layer: str | None, visit: Visit, trained: Trained) -> Parting:
    """Estimate the client's feature distribution with its own model."""
    data = visit.data
    return Parting(
        extra_upload=_estimated(estimator, layer, visit.context.replica, trained.after, data.data, data.rows)
    )


def _uploads(layout: Layout, broadcast: Tensors) -> dict[str, Upload]:
    """A row of the broadcast: the mean and the scale of one client's features."""
    rows = {"mean": broadcast["means"], "scale": broadcast["scales"]}
    return {name: Upload(tuple(row.shape[1:]), least=-FARTHEST, limit=FARTHEST) for name, row in rows.items()}


def _estimated(
    estimator: Estimator, layer: str | None, replica: Replica, model: ModelState, data: Data, rows: Indices
) -> Tensors:
    name = classifier_layer(replica.module, layer)
    return estimate(features_of(replica, model, name, data, data.train, rows), estimator)


class _Distributions:
    """Collects the clients' feature distributions."""

    def __init__(self, cohort: Cohort) -> None:
        self._uploads: dict[int, tuple[int, Tensors]] = {}

    def add(self, update: ClientUpdate) -> None:
        upload: Tensors = update.extra_upload[NAME]  # type: ignore[assignment]
        self._uploads[update.slot] = (update.client, {name: tensor.clone() for name, tensor in upload.items()})

    def finish(self) -> Tensors:
        uploads = [self._uploads[slot] for slot in sorted(self._uploads)]
        return {
            "clients": torch.tensor([client for client, _ in uploads]),
            "means": torch.stack([upload["mean"] for _, upload in uploads]),
            "scales": torch.stack([upload["scale"] for _, upload in uploads]),
        }


def _next_broadcast(broadcast: Tensors, gathered: Tensors) -> Tensors:
    """Renew the distributions of those who were heard."""
    clients = gathered["clients"]
    return {
        "means": broadcast["means"].index_copy(0, clients, gathered["means"]),
        "scales": broadcast["scales"].index_copy(0, clients, gathered["scales"]),
        "weights": broadcast["weights"],
    }


def _regroup(state: ServerState, members: Sequence[int], client_states: Sequence[Tensors | None]) -> ServerState:
    """Let the mixture be that of the members alone."""
    mixture: Tensors = state.broadcast[NAME]  # type: ignore[assignment]
    inside = torch.zeros_like(mixture["weights"])
    inside[list(members)] = mixture["weights"][list(members)]
    weights = inside / inside.sum() if float(inside.sum()) > 0 else mixture["weights"]
    broadcast: State = {**state.broadcast, NAME: {**mixture, "weights": weights}}
    return replace(state, broadcast=broadcast)
