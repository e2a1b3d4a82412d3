"""Why clients disagree, measured on a round: conflicts and divergence (Ozdayi 2020), the excess-risk bound (Wei 2022)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.features import features_of
from fedquilt.algorithm.parts.selection import BySize
from fedquilt.analysis.conflicts import conflict_rate, parameter_divergence
from fedquilt.analysis.excess_risk import excess_risk
from fedquilt.analysis.feature_map import layer_of
from fedquilt.base.errors import FedquiltError
from fedquilt.base.rng import torch_seeded
from fedquilt.compute.layout import ModelState
from fedquilt.round.federation import Federation

EXAMPLES = 1000
"""Examples of the test set on which clients' predictions are compared."""


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
        record["divergence"] = {"distance": _known(divergence.distance), "relative": _known(divergence.relative)}
    risk = None if start is None else _excess_risk(federation, start)
    return record | ({"excess_risk": risk} if risk is not None else {})


@torch.no_grad()
def _predictions(federation: Federation, model: ModelState) -> Tensor:
    rows = torch.arange(min(EXAMPLES, len(federation.data.test)))
    replica, found = federation.replica, []
    with torch_seeded(federation.seed, "diagnose"):
        for part in torch.split(rows, federation.data.at_once or EXAMPLES):
            x = replica.place.put(federation.data.inputs(federation.data.test, part))
            outputs: Tensor = functional_call(replica.module.eval(), replica.tensors(model), (x,))
            found.append(replica.place.fetch(outputs.argmax(dim=-1).flatten()))
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
        "agnostic": _known(risk.agnostic),
        "approximation": _known(risk.approximation),
        "federated": _known(risk.federated),
        "discrepancy": _known(risk.discrepancy),
        "trace_norm": _known(risk.trace),
        "skew": _known(risk.skew),
        "rademacher": _known(risk.rademacher),
        "feature_norm": _known(math.sqrt(sum(squares))),
    }


def _mixture(algorithm: Algorithm, sizes: Tensor) -> list[float]:
    """Return p̂: how much each client counts in the long run, by its weight and how often it is drawn."""
    weights = torch.tensor([algorithm.weigh(int(size)) for size in sizes], dtype=torch.float64)
    if isinstance(algorithm.select, BySize):
        weights *= sizes
    return (weights / weights.sum()).tolist()


def _known(value: float) -> float | None:
    """Return nothing for a value that overflowed: JSON has no word for it."""
    return value if math.isfinite(value) else None
