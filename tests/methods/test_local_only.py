"""Every client on its own, against training each of them by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.base.errors import SpecError
from fedquilt.partition.partition import Partition
from fedquilt.round.per_client import hold_out

INF = float("inf")


def test_three_rounds_by_hand(quadratics):
    """A step of rate 1/2 on curvature 1 halves the distance to b; a client with two examples takes two a round."""
    result = quadratics((1, 1), (2, 1), (1, 2)).train(
        method=fedquilt.local_only(lr=0.5, batch=1, holdout=0.0), rounds=3
    )
    assert [group.state.model.vector.item() for group in result.run.groups] == [2 * (1 - 1 / 8), 1 - 1 / 64]
    assert [group.clients.tolist() for group in result.run.groups] == [[0], [1]]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_model_is_that_of_the_client_trained_alone_to_the_bit(momentum, run, unbalanced):
    arguments = {"lr": 0.1, "epochs": 2, "batch": INF, "momentum": momentum, "weight_decay": 0.01}
    together = run(fedquilt.local_only(**arguments, holdout=0.0), rounds=3)
    for k, group in enumerate(together.run.groups):
        alone = fedquilt.fed_avg(**arguments, fraction=1.0, keep_momentum=True)
        result = run(alone, rounds=3, partition=Partition.of([unbalanced.client(k)]))
        assert torch.equal(group.state.model.vector, result.state.vector)


def test_batches_are_drawn_as_in_a_federation_of_one(run, unbalanced):
    """The first client has the same keys in both."""
    together = run(fedquilt.local_only(batch=2, holdout=0.0), rounds=3)
    alone = run(fedquilt.fed_avg(fraction=1.0, batch=2), rounds=3, partition=Partition.of([unbalanced.client(0)]))
    assert torch.equal(together.run.groups[0].state.model.vector, alone.state.vector)


def test_buffers_are_each_clients_own(run, normalised, unbalanced):
    together = run(fedquilt.local_only(batch=INF, holdout=0.0), rounds=2, module=normalised)
    for k in (0, 4):
        alone = fedquilt.fed_avg(fraction=1.0, batch=INF)
        result = run(alone, rounds=2, module=normalised, partition=Partition.of([unbalanced.client(k)]))
        model = together.run.groups[k].state.model
        assert torch.allclose(model.buffers, result.state.buffers, atol=1e-7)
        assert torch.equal(model.counters, result.state.counters)


def test_nothing_is_sent_and_everybody_trains(run):
    for record in run(fedquilt.local_only(), rounds=2).history:
        assert record["bytes_up"] == record["bytes_down"] == 0
        assert record["clients"] == [0, 1, 2, 3, 4, 5]


def test_accuracy_is_the_mean_over_clients_on_the_whole_test_set_and_own_accuracy_that_of_own_data(
    run, blobs, unbalanced
):
    result = run(fedquilt.local_only(holdout=0.3), rounds=2)
    record, (_, held) = result.history.records[-1], hold_out(unbalanced, 0.3, seed=1)
    x, y = blobs.test.x, blobs.test.y
    each = [float((model(x).argmax(dim=1) == y).double().mean()) for model in result.models]
    assert record["accuracy"] == pytest.approx(np.mean(each), abs=1e-12)
    assert [group["accuracy"] for group in record["groups"]] == each
    right = 0
    for k, model in enumerate(result.models):
        rows = torch.from_numpy(held.client(k))
        right += int((model(blobs.train.x[rows]).argmax(dim=1) == blobs.train.y[rows]).sum())
    assert record["per_client_accuracy"] == right / len(held.indices)


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_sends_nan_stays_where_it_was_and_disturbs_no_other(run, poisoned, unbalanced, start):
    method = fedquilt.local_only(batch=8, holdout=0.0)
    clean, dirty = run(method, rounds=2), run(method, rounds=2, data=poisoned(unbalanced.client(1)[:1]))
    assert [[entry["client"] for entry in record["dropped"]] for record in dirty.history] == [[1], [1]]
    for k, (left, right) in enumerate(zip(clean.run.groups, dirty.run.groups, strict=True)):
        same = left.state.model.vector if k != 1 else start.float()
        assert torch.equal(right.state.model.vector, same)


def test_one_client_is_fine(run, unbalanced):
    method = fedquilt.local_only(batch=8, holdout=0.0)
    result = run(method, rounds=2, partition=unbalanced.pooled())
    assert result.digest == run(fedquilt.fed_avg(fraction=1.0, batch=8), 2, partition=unbalanced.pooled()).digest


@pytest.mark.parametrize("wrap", [fedquilt.scaffold, fedquilt.fed_nova])
def test_corrections_of_drift_have_nothing_to_correct(wrap, run):
    """SCAFFOLD: c is the mean over a group's clients, here one, so that c = c_k. FedNova: its steps are the mean."""
    base = fedquilt.local_only(lr=0.2, epochs=2, batch=INF, holdout=0.0)
    plain, wrapped = run(base, rounds=4), run(wrap(base), rounds=4)
    for left, right in zip(plain.run.groups, wrapped.run.groups, strict=True):
        assert (left.state.model.vector - right.state.model.vector).abs().max() < 2e-6


def test_it_cannot_be_given_another_course():
    with pytest.raises(SpecError, match=r"local_only and fl_hc both set `course\.round`"):
        fedquilt.fl_hc(fedquilt.local_only())
