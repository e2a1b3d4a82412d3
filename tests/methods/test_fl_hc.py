"""FL+HC (Briggs 2020): which clients it puts together, and what each cluster then trains."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.base.errors import SpecError
from fedquilt.methods.fl_hc import cluster
from fedquilt.partition.partition import Partition
from fedquilt.simulate.simulation import Absence

INF = float("inf")
BASE = {"fraction": 1.0, "batch": 8}


def members(result):
    return [group.clients.tolist() for group in result.run.groups]


@pytest.fixture
def planted(blobs):
    """Eight clients with 30 examples each; 0, 2, 5, 6 and 7 have the labels of the others turned by one."""
    rows = np.random.default_rng(0).permutation(240).reshape(8, 30)
    y = blobs.train.y.clone()
    turned = torch.from_numpy(rows[[0, 2, 5, 6, 7]].ravel())
    y[turned] = (y[turned] + 1) % 3
    return replace(blobs, train=replace(blobs.train, y=y)), Partition.of(list(rows))


@pytest.mark.filterwarnings("ignore:the run has .* rounds?, but its method has no effect:RuntimeWarning")
def test_three_rounds_by_hand(quadratics):
    """Optima 2, 2, 0, 0 of sizes 1, 1, 2, 2; a full step of rate 1/2 goes halfway to the optimum.

    Round 1, together: the mean optimum is 4/6, so w = 1/3. In the clustering round the first two go to 7/6, the others to
    1/6, and each cluster starts from the mean of its own. Then 19/12 and 1/12.
    """
    clients = quadratics((1, 1, 1, 1), (2, 2, 0, 0), (1, 1, 2, 2))
    wrap = partial(fedquilt.fl_hc, rounds=1, clusters=2)
    first, second, third = (clients.train(wrap, rounds=rounds, lr=0.5, batch=INF) for rounds in (1, 2, 3))
    assert len(first.run.groups) == 1
    assert first.state.vector.item() == pytest.approx(1 / 3, abs=1e-6)
    assert members(second) == members(third) == [[0, 1], [2, 3]]
    found = [[group.state.model.vector.item() for group in result.run.groups] for result in (second, third)]
    assert found[0] == pytest.approx([7 / 6, 1 / 6], abs=1e-6)
    assert found[1] == pytest.approx([19 / 12, 1 / 12], abs=1e-6)


@pytest.mark.parametrize(
    ("linkage", "distance"),
    [("ward", "euclidean"), ("single", "euclidean"), ("complete", "cityblock"), ("average", "cosine")],
)
def test_it_finds_planted_groups(linkage, distance, run, planted):
    data, partition = planted
    method = fedquilt.fl_hc(fedquilt.fed_avg(**BASE), rounds=2, linkage=linkage, distance=distance)
    result = run(method, rounds=3, data=data, partition=partition)
    assert members(result) == [[0, 2, 5, 6, 7], [1, 3, 4]]


def test_planted_groups_are_better_served_by_a_model_each(run, planted):
    data, partition = planted
    together = fedquilt.own_test(fedquilt.fed_avg(**BASE), holdout=0.0)
    apart = fedquilt.fl_hc(fedquilt.fed_avg(**BASE), rounds=2)
    accuracies = [
        run(method, rounds=8, data=data, partition=partition).history.records[-1]["per_client_accuracy"]
        for method in (together, apart)
    ]
    assert accuracies[0] < 0.7
    assert accuracies[1] > 0.9


@pytest.mark.parametrize("clusters", [1, 3, 8])
def test_there_are_as_many_clusters_as_asked_for(clusters, run, planted):
    data, partition = planted
    method = fedquilt.fl_hc(fedquilt.fed_avg(**BASE), rounds=1, clusters=clusters)
    result = run(method, rounds=2, data=data, partition=partition)
    assert len(result.run.groups) == clusters
    assert sorted(client for group in members(result) for client in group) == list(range(8))


def test_a_threshold_joins_what_is_nearer(run, planted):
    data, partition = planted
    counts = []
    for threshold in (1e-6, 0.5, 1e6):
        method = fedquilt.fl_hc(fedquilt.fed_avg(**BASE), rounds=1, threshold=threshold, linkage="average")
        counts.append(len(run(method, rounds=2, data=data, partition=partition).run.groups))
    assert counts == [8, 2, 1]


def test_clusters_by_hand():
    """Points 0, 1, 3, 7 on a line: single linkage joins at 1, 2 and 4; complete at 1, 3 and 7; average at 1, 5/2, 17/3."""
    points = np.array([[0.0], [1.0], [3.0], [7.0]], dtype=np.float32)
    for linkage, last in (("single", 4.0), ("complete", 7.0), ("average", 17 / 3)):
        assert cluster(points, None, last - 0.01, linkage, "euclidean").tolist() == [0, 0, 0, 1]
        assert cluster(points, None, last + 0.01, linkage, "euclidean").tolist() == [0, 0, 0, 0]
    assert cluster(points, 3, None, "ward", "euclidean").tolist() == [0, 0, 1, 2]


def test_distances_by_hand():
    """(1, 0), (3, 0) and (1, 1): by direction the first two are one, by length the first and the last."""
    points = np.array([[1, 0], [3, 0], [1, 1]], dtype=np.float32)
    assert cluster(points, 2, None, "average", "cosine").tolist() == [0, 0, 1]
    assert cluster(points, 2, None, "average", "euclidean").tolist() == [0, 1, 0]
    assert cluster(points, None, 0.999, "average", "cityblock").tolist() == [0, 1, 2]
    assert cluster(points, None, 1.001, "average", "cityblock").tolist() == [0, 1, 0]


def test_an_update_of_zeros_has_no_direction():
    points = np.array([[1, 0], [2, 0], [0, 0], [0, 3]], dtype=np.float32)
    assert cluster(points, None, 0.5, "average", "cosine").tolist() == [0, 0, 1, 2]


def test_clusters_are_numbered_by_first_appearance():
    points = np.array([[9.0], [0.0], [9.1], [5.0]], dtype=np.float32)
    assert cluster(points, 3, None, "ward", "euclidean").tolist() == [0, 1, 0, 2]


def test_arguments_that_do_not_go_together():
    base = fedquilt.fed_avg()
    for distance in ("cosine", "cityblock"):
        with pytest.raises(SpecError, match='"ward" needs distance "euclidean"'):
            fedquilt.fl_hc(base, distance=distance)
    assert fedquilt.fl_hc(base, clusters=None, threshold=1.0).course.round.threshold == 1.0


@pytest.mark.parametrize("wrap", [fedquilt.scaffold, fedquilt.fed_dyn, fedquilt.fed_nova, fedquilt.fed_prox, None])
def test_with_one_cluster_it_is_the_wrapped_method_to_the_bit(wrap, run):
    base = fedquilt.fed_avg(**BASE)
    base = base if wrap is None else wrap(base)
    assert run(fedquilt.fl_hc(base, rounds=2, clusters=1), rounds=5).digest == run(base, rounds=5).digest


def test_with_one_cluster_buffers_are_the_wrapped_methods_too(run, normalised):
    base = fedquilt.fed_avg_m(fraction=1.0, batch=INF, momentum=0.9)
    plain, clustered = (
        run(method, rounds=4, module=normalised) for method in (base, fedquilt.fl_hc(base, rounds=2, clusters=1))
    )
    assert plain.digest == clustered.digest
    assert torch.equal(plain.state.buffers, clustered.state.buffers)


def test_before_it_clusters_it_is_the_wrapped_method_to_the_bit(run):
    """In the records too, apart from accuracy on own data; a run that ends so soon is warned of."""
    base = fedquilt.fed_avg(fraction=0.5, batch=8)
    plain = run(base, rounds=3)
    with pytest.warns(RuntimeWarning, match="the run has 3 rounds, but its method has no effect before round 4"):
        clustered = run(fedquilt.fl_hc(base, rounds=3), rounds=3)
    assert plain.digest == clustered.digest
    for left, right in zip(plain.history, clustered.history, strict=True):
        assert right["per_client_accuracy"] is not None
        drop = {"seconds", "per_client_accuracy", "per_client_accuracy_worst_tenth", "per_client_accuracy_quantiles"}
        assert {k: v for k, v in left.items() if k not in drop} == {k: v for k, v in right.items() if k not in drop}


def test_everybody_takes_part_in_the_clustering_round_and_a_fraction_of_each_cluster_after_it(run, planted):
    data, partition = planted
    method = fedquilt.fl_hc(fedquilt.fed_avg(fraction=0.5, batch=8), rounds=2)
    history = run(method, rounds=5, data=data, partition=partition).history
    assert [len(record["clients"]) for record in history] == [4, 4, 8, 5, 5]  # 2.5 of 5 and 1.5 of 3, halves up
    assert sorted(history.records[2]["clients"]) == list(range(8))
    for record in history:
        assert record["bytes_up"] == record["bytes_down"] == len(record["clients"]) * 75 * 4


def test_a_cluster_trains_as_a_federation_of_its_members(run, planted):
    """Full batches, all clients: from the clustering round on, each is FedAvg on its members from the common model."""
    data, partition = planted
    base = fedquilt.fed_avg(fraction=1.0, batch=INF, epochs=2)
    result = run(fedquilt.fl_hc(base, rounds=2), rounds=5, data=data, partition=partition)
    common = run(base, rounds=2, data=data, partition=partition).model
    for group in result.run.groups:
        inside = Partition.of([partition.client(k) for k in group.clients])
        alone = run(base, rounds=3, module=common, data=data, partition=inside)
        assert (group.state.model.vector - alone.state.vector).abs().max() < 1e-6


def test_accuracy_is_the_mean_over_clients_of_their_clusters(run, planted):
    data, partition = planted
    result = run(fedquilt.fl_hc(fedquilt.fed_avg(**BASE), rounds=1), rounds=4, data=data, partition=partition)
    record = result.history.records[-1]
    x, y = data.test.x, data.test.y
    each = [float((model(x).argmax(dim=1) == y).double().mean()) for model in result.models]
    assert record["accuracy"] == pytest.approx(5 / 8 * each[0] + 3 / 8 * each[1], abs=1e-12)
    assert [(group["clients"], group["accuracy"]) for group in record["groups"]] == [(5, each[0]), (3, each[1])]
    right = 0
    for model, clients in zip(result.models, members(result), strict=True):
        rows = torch.from_numpy(np.concatenate([partition.client(k) for k in clients]))
        right += int((model(data.train.x[rows]).argmax(dim=1) == data.train.y[rows]).sum())
    assert record["per_client_accuracy"] == right / 240


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_fails_in_the_clustering_round_is_put_into_the_largest_cluster(run, planted):
    data, partition = planted
    x = data.train.x.clone()
    x[partition.client(3)[0]] = float("nan")
    broken = replace(data, train=replace(data.train, x=x))
    result = run(fedquilt.fl_hc(fedquilt.fed_avg(**BASE), rounds=1), rounds=3, data=broken, partition=partition)
    assert members(result) == [[0, 2, 3, 5, 6, 7], [1, 4]]
    assert [[entry["client"] for entry in record["dropped"]] for record in result.history] == [[3], [3], [3]]
    assert all(torch.isfinite(group.state.model.vector).all() for group in result.run.groups)


def _third_away(asked):
    return Absence({place: "is away" for place, client in enumerate(asked.clients) if client == 3}, None)


def test_a_client_that_is_away_in_the_clustering_round_is_put_somewhere_and_named_once(run, planted):
    data, partition = planted
    base, simulate = fedquilt.fed_avg(**BASE), [fedquilt.Simulation("away", drop_out=(_third_away,))]
    options = {"rounds": 3, "data": data, "partition": partition, "simulate": simulate}
    result = run(fedquilt.fl_hc(base, rounds=1), **options)
    assert members(result) == [[0, 2, 3, 5, 6, 7], [1, 4]]
    assert [record["absent"] for record in result.history] == [[{"client": 3, "reason": "is away"}]] * 3
    one = run(fedquilt.fl_hc(base, rounds=1, clusters=1), **options)
    assert one.digest == run(base, **options).digest


def _third_unavailable(round_, population, seed):
    return np.arange(len(population)) != 3


def test_with_one_cluster_and_part_of_the_clients_there_it_is_the_wrapped_method_to_the_bit(run):
    base, simulate = fedquilt.fed_avg(**BASE), [fedquilt.Simulation("away", available=_third_unavailable)]
    clustered = run(fedquilt.fl_hc(base, rounds=1, clusters=1), rounds=3, simulate=simulate)
    assert clustered.digest == run(base, rounds=3, simulate=simulate).digest


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:the run diverged:RuntimeWarning")
def test_where_only_one_client_is_heard_there_is_nothing_to_cluster(run, poisoned, unbalanced):
    broken = np.concatenate([unbalanced.client(k) for k in (0, 1, 2, 3, 4)])
    result = run(fedquilt.fl_hc(fedquilt.fed_avg(**BASE), rounds=1), rounds=3, data=poisoned(broken))
    assert members(result) == [[0, 1, 2, 3, 4, 5]]


class StopError(Exception):
    pass


class StopAfter:
    def __init__(self, round_):
        self.last = round_

    def begin(self, history, last):
        pass

    def heard(self, clients, total):
        pass

    def round(self, record):
        if record["round"] == self.last:
            raise StopError


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_a_run_that_is_resumed_around_the_clustering_round_is_the_same(stop, run, planted, tmp_path):
    """The clients are clustered in round 3: a run that stops after round 2 clusters when it is resumed."""
    data, partition = planted
    method = fedquilt.fl_hc(fedquilt.scaffold(fedquilt.fed_avg(fraction=0.5, batch=8)), rounds=2)
    whole = run(method, rounds=5, data=data, partition=partition)
    with pytest.raises(StopError):
        run(
            method,
            rounds=5,
            data=data,
            partition=partition,
            out=tmp_path / "run",
            watcher=StopAfter(stop),
            checkpoint_seconds=0.0,
        )
    resumed = run(method, rounds=5, data=data, partition=partition, out=tmp_path / "run")
    assert resumed.digest == whole.digest
    assert members(resumed) == members(whole)


def test_workers_do_not_matter(run, planted, normalised):
    """Nor does it that an engine's memory is overwritten while updates wait to be clustered, buffers included."""
    data, partition = planted
    method = fedquilt.fl_hc(fedquilt.scaffold(fedquilt.fed_avg(fraction=0.5, batch=10)), rounds=1)
    inline, parallel = (
        run(method, rounds=3, module=normalised, data=data, partition=partition, engine=engine)
        for engine in (fedquilt.inline(), fedquilt.processes(workers=2))
    )
    assert inline.digest == parallel.digest
    assert inline.history.records[-1]["per_client_accuracy"] == parallel.history.records[-1]["per_client_accuracy"]


@pytest.mark.parametrize("wrap", [fedquilt.scaffold, partial(fedquilt.fed_dyn, alpha=0.5)], ids=["scaffold", "fed_dyn"])
def test_memory_is_divided_among_the_clusters(wrap, quadratics):
    """Curvatures 1, 4, 1, 4 and optima 6, 5, 1, 0: every cluster finds its own minimum, Σ a_k·b_k / Σ a_k.

    A server's variate (or h) that stayed that of all clients would differ from the mean of the members' for ever, and pull
    each cluster away from there by as much; so would an h that is mistaken for the h/α which the server keeps (α is not 1).
    """
    clients = quadratics((1, 2, 1, 2), (6, 10, 1, 0), (2, 2, 2, 2))

    def both(base):
        return fedquilt.fl_hc(wrap(base), rounds=1)

    result = clients.train(both, rounds=50, lr=0.2)
    assert len(result.run.groups) == 2
    for group in result.run.groups:
        x, y = np.asarray(clients.x)[group.clients], np.asarray(clients.y)[group.clients]
        assert group.state.model.vector.item() == pytest.approx((x * y).sum() / (x * x).sum(), abs=1e-4)
