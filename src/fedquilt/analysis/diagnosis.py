"""Why clients disagree, measured on a round: conflicts and divergence (Ozdayi 2020), the excess-risk bound (Wei 2022).

Ozdayi 2020 gives two causes for federated models being worse: hypothesis conflicts, of which it has a definition (§3.1),
and parameter divergence, of which it has a picture (§3.2, Figure 2). It has a number for neither; those here are our
reading of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.parts.selection import BySize
from fedquilt.algorithm.penalty import features_of
from fedquilt.analysis.excess_risk import excess_risk
from fedquilt.analysis.feature_map import layer_of
from fedquilt.base.errors import FedquiltError
from fedquilt.base.rng import torch_seeded
from fedquilt.compute.layout import ModelState
from fedquilt.round.federation import Federation
from fedquilt.round.measures import finite_or_none

EXAMPLES = 1000
"""Examples of the test set on which clients' predictions are compared."""


def conflict_rate(predictions: Tensor) -> float:
    """Return how often two clients' models disagree: the mean over pairs of the share of inputs with different classes.

    Ozdayi 2020 (§3.1): two models conflict if there is an input x with f_i(x) ≠ f_j(x). With real models there always is
    one, so that it is counted how often.

    predictions: classes, whole numbers from 0, of shape (models, inputs). A model alone conflicts with none.

    >>> conflict_rate(torch.tensor([[0, 1, 2, 2], [0, 1, 1, 1], [0, 1, 1, 0]]))
    0.4166666666666667
    """
    if predictions.ndim != 2 or predictions.numel() == 0:
        raise ValueError(f"predictions must be of shape (models, inputs), got {tuple(predictions.shape)}")
    if predictions.is_floating_point() or bool((predictions < 0).any()):
        raise ValueError("predictions must be classes, integers from 0; take the argmax of the scores first")
    models, inputs = predictions.shape
    if models == 1:
        return 0.0
    # Counts of classes instead of pairs of models: n_c models that agree on c make n_c(n_c − 1)/2 pairs.
    chosen = predictions.long()
    counts = chosen.new_zeros(int(chosen.max()) + 1, inputs)
    counts.scatter_add_(0, chosen, chosen.new_ones(1, 1).expand_as(chosen))
    pairs = inputs * models * (models - 1) // 2
    agreeing = int((counts * (counts - 1)).sum()) // 2
    return (pairs - agreeing) / pairs


@dataclass(frozen=True)
class Divergence:
    """How far the clients' models lie from their mean."""

    distance: float
    """(1/K)·Σ ‖w_k − w̄‖₂, with w̄ = (1/K)·Σ w_k."""
    relative: float
    """The distance divided by ‖w̄‖₂."""


def parameter_divergence(vectors: Tensor) -> Divergence:
    """Return the mean L2 distance of the clients' models from their mean, and that divided by the mean's norm.

    Ozdayi 2020 (§3.2, Figure 2) has no formula, and refers to Zhao 2018, whose weight divergence is ‖w_fl − w_sgd‖/‖w_sgd‖
    against a model trained on all data together. There is none such here: the plain mean of the clients' models stands
    for it. Given updates instead of models, the distance is the same, since all start from one model; the relative form
    is not, and is infinite where updates cancel out.

    vectors: one flat vector a client, of shape (clients, parameters).

    >>> parameter_divergence(torch.tensor([[3.0, 0.0], [3.0, 8.0]]))
    Divergence(distance=4.0, relative=0.8)
    """
    if vectors.ndim != 2 or vectors.numel() == 0:
        raise ValueError(f"vectors must be of shape (clients, parameters), got {tuple(vectors.shape)}")
    vectors = vectors.detach()
    # One client at a time, since `vectors.mean(dtype=torch.float64)` would copy all models.
    mean = vectors.new_zeros(vectors.shape[1], dtype=torch.float64)
    for vector in vectors:
        mean += vector
    mean /= len(vectors)
    distance = math.fsum(float(torch.linalg.vector_norm(vector - mean)) for vector in vectors) / len(vectors)
    scale = float(torch.linalg.vector_norm(mean))
    if scale == 0:
        return Divergence(distance, math.inf if distance > 0 else 0.0)
    return Divergence(distance, distance / scale)


def diagnose(federation: Federation, start: ModelState | None, models: Sequence[ModelState]) -> dict[str, Any]:
    """Measure clients' models after a round that began from `start`.

    - `conflict_rate`: how often two clients' models predict different classes for a test example (Ozdayi 2020, §3.1);
    - `divergence`: the mean distance of the clients' models from their mean, in parameters, and relative to the norm of
      the mean (§3.2);
    - `excess_risk`: the terms of Wei 2022's Theorem 4 for the model `start`, where there is one and it names its
      classifier.
    """
    record: dict[str, Any] = {}
    if models:
        if federation.data.classes:
            record["conflict_rate"] = conflict_rate(torch.stack([_predictions(federation, model) for model in models]))
        divergence = parameter_divergence(torch.stack([model.vector for model in models]))
        record["divergence"] = {
            "distance": finite_or_none(divergence.distance),
            "relative": finite_or_none(divergence.relative),
        }
    risk = None if start is None else _excess_risk(federation, start)
    return record | ({"excess_risk": risk} if risk is not None else {})


@torch.no_grad()
def _predictions(federation: Federation, model: ModelState) -> Tensor:
    rows = torch.arange(min(EXAMPLES, len(federation.data.test)))
    replica, found = federation.replica, []
    with torch_seeded(federation.seed, "diagnose"):
        for part in torch.split(rows, federation.data.at_once or EXAMPLES):
            x = replica.placement.put(federation.data.inputs(federation.data.test, part))
            outputs: Tensor = functional_call(replica.module.eval(), replica.tensors(model), (x,))
            found.append(replica.placement.fetch(outputs.argmax(dim=-1).flatten()))
    return torch.cat(found)


def _excess_risk(federation: Federation, model: ModelState) -> dict[str, Any] | None:
    try:
        layer = layer_of(federation)
    except FedquiltError:
        return None
    held = [client for client in range(len(federation.partition)) if len(federation.partition.client(client))]
    means, squares = [], []
    with torch_seeded(federation.seed, "diagnose"):
        for client in held:
            rows = federation.partition.client(client)
            seen = features_of(federation.replica, model, layer, federation.data, federation.data.train, rows).double()
            means.append(seen.mean(dim=0))
            squares.append(float(seen.square().sum()))
    sizes = torch.from_numpy(federation.partition.sizes[held])
    trained, name = federation.layout.parameters_of(model.vector), f"{layer}.weight"
    weight = trained[name] if name in trained else federation.replica.module.get_parameter(name).detach().cpu()
    norms = [math.sqrt(square) for square in squares]
    risk = excess_risk(weight.T, norms, torch.stack(means), sizes.tolist(), _mixture(federation.algorithm, sizes))
    return {
        "agnostic": finite_or_none(risk.agnostic),
        "approximation": finite_or_none(risk.approximation),
        "federated": finite_or_none(risk.federated),
        "discrepancy": finite_or_none(risk.discrepancy),
        "trace_norm": finite_or_none(risk.trace),
        "skew": finite_or_none(risk.skew),
        "rademacher": finite_or_none(risk.rademacher),
        "feature_norm": finite_or_none(math.sqrt(sum(squares))),
    }


def _mixture(algorithm: Algorithm, sizes: Tensor) -> list[float]:
    """Return p̂: how much each client counts in the long run, by its weight and how often it is drawn."""
    weights = torch.tensor([algorithm.weigh(int(size)) for size in sizes], dtype=torch.float64)
    if isinstance(algorithm.select, BySize):
        weights *= sizes
    return (weights / weights.sum()).tolist()
