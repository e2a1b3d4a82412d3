"""FL+HC: Briggs, Fan and Andras, Federated Learning with Hierarchical Clustering of Local Updates (2020).

Rounds of the wrapped method for all clients; then one round in which every client trains and the updates are clustered
agglomeratively; from there on every cluster trains a model of its own. The updates of the clustering round count: each
cluster starts with the mean of its own members'. With one cluster this is the wrapped method.

Wei 2022 compares with it (two clusters) and tests "with the entire test set": we report the mean over clients of their
cluster model's accuracy there, and accuracy on the clients' own data, for which the method was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.selection import Uniform
from fedquilt.algorithm.state import Group, RunState
from fedquilt.algorithm.updates import Answer, ClientUpdate, Fault, one_by_one
from fedquilt.base.arguments import BelowOne, Count, Positive
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import wrappers
from fedquilt.base.types import Indices
from fedquilt.round.checks import Expected
from fedquilt.round.merge import checked
from fedquilt.round.plan import Plan, plan, planned_weight
from fedquilt.round.round_function import Ended, Step, Work, every_group, listened, merged, regrouped
from fedquilt.round.session import Pending

Linkage = Literal["ward", "single", "complete", "average"]
Distance = Literal["euclidean", "cityblock", "cosine"]

CLUSTERS = 2
"""Clusters unless others, or a threshold, are given: as Wei 2022 compares with."""


@wrappers.register
def fl_hc(
    algorithm: Algorithm,
    rounds: Count = 10,
    clusters: Count | None = None,
    threshold: Positive | None = None,
    linkage: Linkage = "ward",
    distance: Distance = "euclidean",
    holdout: BelowOne = 0.0,
) -> Algorithm:
    """Cluster clients by their updates, and train a model for each cluster (Briggs 2020, Wei 2022).

    - After `rounds` rounds together, all clients take part in one round, and their updates are clustered.
    - `clusters` is how many there are to be at most, 2 unless given; with `threshold` instead, clusters nearer than it are
      joined.
    - `linkage` and `distance` are those of SciPy's agglomerative clustering; "ward" goes with "euclidean" only.
    - Accuracy is reported on the whole test set, as the mean over clients, and on clients' own data
      (`per_client_accuracy`): on a share `holdout` of it that is kept out of training, or, with 0, on what they train on.

    >>> from fedquilt import fed_avg
    >>> fl_hc(fed_avg(fraction=1.0), rounds=5, clusters=3).per_client.share
    0.0
    """
    if linkage == "ward" and distance != "euclidean":
        raise SpecError(f'fl_hc: linkage "ward" needs distance "euclidean", got "{distance}"')
    if threshold is not None and clusters is not None:
        raise SpecError(f"fl_hc: clusters = {clusters} and threshold = {threshold:g}: set only one of them")
    if threshold is None and clusters is None:
        clusters = CLUSTERS
    course = ClusterThenTrain(rounds, clusters, threshold, linkage, distance)
    return claim(
        algorithm, "fl_hc", course={"round": course, "needs_rounds": rounds + 1}, per_client={"share": holdout}
    )


@dataclass(frozen=True)
class ClusterThenTrain:
    """The round function of FL+HC."""

    rounds: int
    clusters: int | None
    threshold: float | None
    linkage: Linkage
    distance: Distance

    def __call__(self, work: Work, run: RunState) -> Pending[Ended]:
        """Begin the next round."""
        return self._split(work, run) if run.round == self.rounds else every_group(work, run)

    def _split(self, work: Work, run: RunState) -> Pending[Ended]:
        """Begin a round with all clients, whose updates are clustered and merged cluster by cluster."""
        server, (whole,) = work.server, run.groups
        everyone = replace(server.algorithm, select=Uniform(1.0))
        planned = plan(everyone, whole, server.population, server.seed, simulation=server.simulation)
        answers = work.session.run(planned, whole.state, run.store)
        return lambda: self._clustered(work, run, everyone, planned, answers)

    def _clustered(
        self, work: Work, run: RunState, everyone: Algorithm, planned: Plan, answers: Iterable[Answer]
    ) -> Ended:
        server, (whole,) = work.server, run.groups
        heard = listened(work, answers, 0, len(planned.slots))
        expected = Expected.of(everyone, server.layout, whole.state, planned)
        results = [_copied(checked(result, expected)) for result in one_by_one(heard)]
        usable = [result for result in results if isinstance(result, ClientUpdate)]
        members = self._members([update.client for update in usable], usable, len(server.population))
        steps: list[Step] = []
        store = run.store
        for clients in members:
            inside = set(clients.tolist())
            # Those who were asked keep their slots: with one cluster this is the plan itself.
            absent = {slot: why for slot, why in planned.absent.items() if planned.client_of[slot] in inside}
            here = np.flatnonzero(np.isin(planned.clients, clients))
            asked, sizes = planned.clients[here], planned.sizes[here]
            part = replace(
                planned,
                clients=asked,
                sizes=sizes,
                weight=planned_weight(everyone, sizes),
                population=len(clients),
                # It tells the clusters' server noise apart; the slots are those of the whole plan.
                first_slot=sum(len(step.planned.clients) for step in steps),
                absent=absent,
                numbers=here + planned.first_slot,
            )
            of_members = [result for result in results if result.client in inside]
            step, store = merged(work, whole.state, part, store, of_members)
            steps.append(step)
        states = [step.after for step in steps]
        if len(members) > 1:
            states = [
                regrouped(everyone, state, clients.tolist(), store)
                for state, clients in zip(states, members, strict=True)
            ]
        groups = tuple(Group(state, clients) for state, clients in zip(states, members, strict=True))
        return RunState(groups, store), steps

    def _members(self, clients: list[int], updates: Sequence[ClientUpdate], population: int) -> list[Indices]:
        """Return the clients of every cluster; those that were not heard are put into the largest."""
        if len(updates) < 2:
            return [np.arange(population, dtype=np.int64)]
        order = np.argsort(clients, kind="stable")
        deltas = np.stack([updates[index].delta.numpy() for index in order])
        labels = cluster(deltas, self.clusters, self.threshold, self.linkage, self.distance)
        of = dict(zip(np.asarray(clients)[order].tolist(), labels.tolist(), strict=True))
        largest = int(np.bincount(labels).argmax())
        everyone = np.asarray([of.get(client, largest) for client in range(population)])
        return [np.flatnonzero(everyone == label) for label in np.unique(everyone)]


def _copied(result: ClientUpdate | Fault) -> ClientUpdate | Fault:
    if isinstance(result, Fault):
        return result
    return replace(result, delta=result.delta.clone(), buffers=result.buffers.clone(), counters=result.counters.clone())


def cluster(
    updates: npt.NDArray[np.float32],
    clusters: int | None,
    threshold: float | None,
    linkage: Linkage,
    distance: Distance,
) -> npt.NDArray[np.int64]:
    """Cluster updates, one per row; return the cluster of each, numbered by first appearance.

    >>> cluster(np.array([[0.0], [5.0], [0.1]], dtype=np.float32), 2, None, "average", "euclidean").tolist()
    [0, 1, 0]
    """
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import pdist

    distances = pdist(updates.astype(np.float64), distance)
    # An update of zeros has no direction: its cosine distance, 0/0, is taken to be that of unrelated ones.
    tree = hierarchy.linkage(np.nan_to_num(distances, nan=1.0), linkage)
    if clusters is not None:
        labels = hierarchy.fcluster(tree, clusters, criterion="maxclust")
    else:
        labels = hierarchy.fcluster(tree, threshold, criterion="distance")
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)
