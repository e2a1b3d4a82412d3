"""Features of every client and of all together, drawn in two dimensions (Wei 2022, Figure 2).

As many examples of every client are taken as of all clients together. What the model's classifier is given of them, φ(x),
is projected to two dimensions by principal component analysis. The discrepancy is the mean distance of the clients'
centroids from that of the points of all clients, in the plane that is drawn; §5.2 says that it "is calculated by the
distance among the centroids of each group of points", and no more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedquilt.algorithm.penalty import classifier_layer, features_of
from fedquilt.base.rng import generator, torch_seeded
from fedquilt.base.types import Floats, Indices
from fedquilt.compute.layout import ModelState
from fedquilt.round.federation import Federation

POINTS = 100
"""Examples of every client, and of all together, as in the figure."""

MOST_CLIENTS = 20
"""Clients drawn: more colours cannot be told apart."""


@dataclass(frozen=True)
class FeatureMap:
    """Points in the plane: those of all clients together, and of some of them, by client.

    `discrepancy` is the mean distance of the clients' centroids from that of all; `explained` the share of the features'
    variance that the plane shows.
    """

    everyone: list[tuple[float, float]]
    clients: dict[int, list[tuple[float, float]]]
    discrepancy: float
    explained: float


def principal_plane(rows: Floats) -> tuple[Floats, float]:
    """Project rows to the plane of their two largest principal components; return the share of variance that it shows.

    A component's largest part is positive, so that the picture does not turn over by chance.

    >>> plane, explained = principal_plane(np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, -0.5, 0.0]]))
    >>> plane.round(3).tolist(), round(explained, 3)
    ([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.5], [0.0, -0.5]], 1.0)
    """
    centred = rows - rows.mean(axis=0)
    _, sizes, parts = np.linalg.svd(centred, full_matrices=False)
    parts = np.vstack([parts, np.zeros((2, rows.shape[1]))])[:2]
    signs = np.sign(parts[np.arange(2), np.abs(parts).argmax(axis=1)])
    total, shown = float((sizes**2).sum()), float((sizes[:2] ** 2).sum())
    plane = centred @ (parts * np.where(signs == 0, 1, signs)[:, None]).T
    return plane + 0.0, shown / total if total else 1.0  # + 0.0: without negative zeros


def feature_map(federation: Federation, model: ModelState, points: int = POINTS) -> FeatureMap:
    """Draw the features that a model gives of every client's examples, and of all clients' together."""
    layer = layer_of(federation)
    draws = generator(federation.seed, "feature map")
    held = federation.partition
    drawn = [client for client in range(len(held)) if held.size(client)][:MOST_CLIENTS]
    rows = [_some(draws, held.indices.astype(np.int64), points)]
    rows += [_some(draws, held.client(client), points) for client in drawn]
    with torch_seeded(federation.seed, "feature map"):
        features = features_of(
            federation.replica, model, layer, federation.data, federation.data.train, np.concatenate(rows)
        )
    # A model of sequences has several rows of features for each example.
    each = len(features) // sum(map(len, rows))
    plane, explained = principal_plane(features.double().numpy())
    groups = np.split(plane, np.cumsum([each * len(part) for part in rows])[:-1])
    centres = [group.mean(axis=0) for group in groups]
    distances = [float(np.linalg.norm(centre - centres[0])) for centre in centres[1:]]
    return FeatureMap(
        everyone=_pairs(groups[0]),
        clients={client: _pairs(group) for client, group in zip(drawn, groups[1:], strict=True)},
        discrepancy=float(np.mean(distances)),
        explained=explained,
    )


def layer_of(federation: Federation) -> str:
    """Return the name of the classifier's layer: the one that a penalty names, or the model's last."""
    named = [penalty.layer for penalty in federation.algorithm.penalties if penalty.layer is not None]
    return classifier_layer(federation.replica.module, named[0] if named else None)


def _some(draws: np.random.Generator, rows: Indices, points: int) -> Indices:
    """Draw examples without replacement: all of them, where there are fewer than wanted."""
    return draws.permutation(rows)[:points]


def _pairs(points: Floats) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points]
