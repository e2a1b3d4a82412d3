"""Tests on clients' own data: which data those are, and of which model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedquilt
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.per_client import hold_out

INF = float("inf")
BASE = fedquilt.fed_avg(fraction=0.5, batch=8)


def accuracy(module, data, rows):
    module.eval()
    return float((module(data.train.x[rows]).argmax(dim=1) == data.train.y[rows]).double().mean())


def timeless(history):
    return [
        {k: v for k, v in record.items() if k != "seconds" and not k.startswith("per_client")} for record in history
    ]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_what_is_held_out_and_what_is_left_are_disjoint_and_complete(share, unbalanced):
    train, test = hold_out(unbalanced, share, seed=3)
    for k in range(len(unbalanced)):
        left, held = train.client(k).tolist(), test.client(k).tolist()
        assert not set(left) & set(held)
        assert sorted(left + held) == sorted(unbalanced.client(k).tolist())
        assert left
        assert len(held) == min(round(share * (len(left) + len(held))), len(left) + len(held) - 1)


def test_what_is_held_out_depends_on_the_seed(unbalanced):
    once, again, other = (hold_out(unbalanced, 0.5, seed)[1].indices.tolist() for seed in (1, 1, 2))
    assert once == again != other


WITH_HOLDOUT = {
    "own_test": lambda: fedquilt.own_test(BASE, holdout=0.3),
    "fine_tuned": lambda: fedquilt.fine_tuned(BASE, holdout=0.3),
    "ditto": lambda: fedquilt.ditto(BASE, holdout=0.3),
    "local_only": lambda: fedquilt.local_only(holdout=0.3),
    "fl_hc": lambda: fedquilt.fl_hc(BASE, rounds=1, holdout=0.3),
}


@pytest.mark.parametrize("name", WITH_HOLDOUT)
def test_what_is_held_out_is_never_trained_on(name, run, poisoned, unbalanced):
    """Whoever trained on an example that is not a number would send NaN."""
    _, held = hold_out(unbalanced, 0.3, seed=1)
    clean, dirty = run(WITH_HOLDOUT[name](), rounds=3), run(WITH_HOLDOUT[name](), rounds=3, data=poisoned(held.indices))
    assert clean.digest == dirty.digest
    assert not any(record["dropped"] for record in dirty.history)
    for client, kept in dirty.run.store.items():
        assert all(torch.isfinite(tensor).all() for table in kept.values() for tensor in table.values()), client


def test_own_test_trains_on_the_rest_as_if_there_were_no_more(run, unbalanced):
    rest, _ = hold_out(unbalanced, 0.3, seed=1)
    assert run(fedquilt.own_test(BASE, holdout=0.3), rounds=3).digest == run(BASE, rounds=3, partition=rest).digest


def test_without_a_holdout_it_is_tested_on_what_it_trains_on(run, blobs, unbalanced):
    result = run(fedquilt.own_test(BASE, holdout=0.0), rounds=3)
    assert result.digest == run(BASE, rounds=3).digest
    # All clients together hold the whole training set.
    assert result.history.records[-1]["per_client_accuracy"] == accuracy(result.model, blobs, torch.arange(240))
    assert "per_client_accuracy" not in run(BASE).history.records[0]


def test_own_accuracy_counts_examples_and_the_worst_tenth_counts_clients(run, blobs):
    """Of 25 clients the worst tenth are two; a client with nothing to be tested on is in neither number.

    The rate leaves the model as it was: which clients fare worst does not hang on training.
    """
    sizes = np.asarray([7, 12] * 12 + [1])
    many = Partition.by_sizes(np.random.default_rng(0).permutation(240)[: sizes.sum()], sizes)
    result = run(fedquilt.own_test(fedquilt.fed_avg(fraction=0.2, lr=1e-30), holdout=0.4), rounds=2, partition=many)
    _, held = hold_out(many, 0.4, seed=1)
    assert held.sizes[-1] == 0
    each = [(accuracy(result.model, blobs, torch.from_numpy(held.client(k))), held.sizes[k]) for k in range(24)]
    record = result.history.records[-1]
    assert record["per_client_accuracy"] == pytest.approx(sum(a * n for a, n in each) / sum(n for _, n in each))
    worst = sorted(a for a, _ in each)[:2]
    assert worst[0] < worst[1]
    assert record["per_client_accuracy_worst_tenth"] == pytest.approx((worst[0] + worst[1]) / 2)


def test_where_nobody_has_anything_to_be_tested_on_there_is_no_number(run):
    one_each = Partition.of([[k] for k in range(6)])
    record = run(fedquilt.own_test(BASE, holdout=0.4), partition=one_each).history.records[0]
    assert record["per_client_accuracy"] is record["per_client_accuracy_worst_tenth"] is None


def test_fine_tuning_leaves_training_as_it_is_to_the_bit(run):
    plain, tuned = (run(wrap(BASE, holdout=0.3), rounds=4) for wrap in (fedquilt.own_test, fedquilt.fine_tuned))
    assert plain.digest == tuned.digest
    assert timeless(plain.history) == timeless(tuned.history)
    assert not list(tuned.run.store.items())


def test_fine_tuning_leaves_buffers_as_they_are(run, normalised):
    base = fedquilt.fed_avg(fraction=0.5, batch=INF)
    plain, tuned = fedquilt.own_test(base), fedquilt.fine_tuned(base, batch=INF)
    assert run(plain, rounds=3, module=normalised).digest == run(tuned, rounds=3, module=normalised).digest


def test_fine_tuned_models_are_those_of_a_plain_loop(run, blobs, unbalanced, smooth):
    """Every client, selected or not, takes E full-batch steps from the round's model, on what it trains on."""
    method = fedquilt.fine_tuned(fedquilt.fed_avg(fraction=0.5, lr=0.02), lr=0.5, epochs=4, batch=INF, holdout=0.3)
    result = run(method, rounds=2)
    rest, held = hold_out(unbalanced, 0.3, seed=1)
    right = total = 0
    for k in range(6):
        torch.nn.utils.vector_to_parameters(result.state.vector.clone(), smooth.parameters())
        descent, rows = torch.optim.SGD(smooth.parameters(), lr=0.5), torch.from_numpy(rest.client(k))
        for _ in range(4):
            descent.zero_grad()
            functional.cross_entropy(smooth(blobs.train.x[rows]), blobs.train.y[rows]).backward()
            descent.step()
        tested = torch.from_numpy(held.client(k))
        right += round(accuracy(smooth, blobs, tested) * len(tested))
        total += len(tested)
    record = result.history.records[-1]
    assert record["per_client_accuracy"] == right / total
    assert (
        record["per_client_accuracy"]
        > run(fedquilt.own_test(BASE, holdout=0.3), rounds=2).history.records[-1]["accuracy"]
    )


class RefusesSmallBatches(nn.Linear):
    """Trains on whole clients, and fails on the batches of 10 that fine-tuning takes."""

    def forward(self, x):
        if self.training and len(x) == 10:
            raise ValueError("too few")
        return super().forward(x)


def test_where_fine_tuning_fails_the_model_is_tested_as_it_is(run, blobs):
    clients = Partition.by_sizes(np.arange(84), np.full(4, 21))
    base = fedquilt.fed_avg(fraction=0.5, batch=INF)
    plain, tuned = fedquilt.own_test(base, holdout=0.0), fedquilt.fine_tuned(base, lr=1.0, batch=10, holdout=0.0)
    torch.manual_seed(0)
    options = {"module": RefusesSmallBatches(8, 3), "partition": clients}
    left, right = (run(method, **options).history.records[0] for method in (plain, tuned))
    assert left["per_client_accuracy"] == right["per_client_accuracy"]


def test_it_is_measured_only_where_the_model_is(run):
    result = run(fedquilt.fine_tuned(BASE), rounds=4, eval_every=2)
    assert ["per_client_accuracy" in record for record in result.history] == [False, True, False, True]


def test_the_servers_share_is_taken_before_anything_is_held_out(blobs, unbalanced, smooth):
    method = fedquilt.own_test(fedquilt.server_training(BASE, share=0.1), holdout=0.3)
    federation = Federation.of(smooth, blobs, unbalanced, method, seed=1)
    parts = [federation.server_rows, federation.partition.indices, federation.tests.held.indices]
    assert sorted(np.concatenate(parts).tolist()) == list(range(240))
