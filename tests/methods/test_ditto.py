"""Ditto (Li 2021) against hand-derived numbers, plain loops and the method that it wraps."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import fedquilt
from fedquilt.base.errors import SpecError
from fedquilt.round.per_client import hold_out

INF = float("inf")


def own(result):
    return {client: state["ditto"]["vector"] for client, state in result.run.store.items()}


def timeless(history):
    """Leave out what a second training costs."""
    left_out = ("seconds", "batches", "gradients")
    return [
        {k: v for k, v in record.items() if k not in left_out and not k.startswith("per_client")} for record in history
    ]


def test_two_rounds_by_hand(quadratics):
    """F = (w − 2)²/2 and w²/2, one shared step of rate 1/2, one own step v ← v − 1/4·(v − b + λ(v − w_t)), λ = 2.

    Round 1, from v = w = 0: v = (1/2, 0); the shared model goes to mean(1, 0) = 1/2.
    Round 2: v_1 = 1/2 − 1/4·(−3/2 + 2·0) = 7/8; v_2 = 0 − 1/4·(0 + 2·(0 − 1/2)) = 1/4. The pull is to the model that the
    round started from, not to what the client has made of it.
    """
    clients = quadratics((1, 1), (2, 0), (1, 1))
    wrap = partial(fedquilt.ditto, pull=2.0, lr=0.25, batch=1, holdout=0.0)
    first, second = (clients.train(wrap, rounds=rounds, lr=0.5) for rounds in (1, 2))
    assert {k: v.item() for k, v in own(first).items()} == {0: 1 / 2, 1: 0}
    assert first.state.vector.item() == 1 / 2
    assert {k: v.item() for k, v in own(second).items()} == {0: 7 / 8, 1: 1 / 4}


def test_own_models_rest_between_the_clients_optimum_and_the_shared_model(quadratics):
    """v_k minimises F_k(v) + λ/2·(v − w*)²: (a_k·b_k + λ·w*) / (a_k + λ), with w* = 1, a = 1, b = (2, 0), λ = 3."""
    clients = quadratics((1, 1), (2, 0), (1, 1))
    result = clients.train(partial(fedquilt.ditto, pull=3.0, lr=0.1, batch=1, epochs=3, holdout=0.0), rounds=50, lr=0.5)
    assert {k: v.item() for k, v in own(result).items()} == pytest.approx({0: 5 / 4, 1: 3 / 4}, abs=1e-6)


@pytest.mark.parametrize("pull", [0.0, 0.7])
def test_a_plain_loop_with_part_of_the_clients(pull, run, gradient, start):
    """A client trains its own model in the rounds that it takes part in, from where it left it, at first from w_t."""
    base = fedquilt.fed_avg(lr=0.2, fraction=0.5, batch=INF)
    result = run(fedquilt.ditto(base, pull=pull, lr=0.3, epochs=2, batch=INF, holdout=0.0), rounds=5)
    models = [start, *(run(base, rounds=rounds).state.vector.double() for rounds in range(1, 6))]
    expected = {}
    for record, w in zip(result.history, models, strict=False):
        for k in record["clients"]:
            v = expected.get(k, w)
            for _ in range(2):
                v = v - 0.3 * (gradient(k, v) + pull * (v - w))
            expected[k] = v
    assert set(own(result)) == set(expected)
    assert all((own(result)[k] - v).abs().max() < 2e-6 for k, v in expected.items())


@pytest.mark.parametrize("holdout", [0.0, 0.3])
def test_the_shared_model_is_the_wrapped_methods_to_the_bit(holdout, run):
    base = fedquilt.fed_avg(fraction=0.5, batch=8)
    plain, ditto = fedquilt.own_test(base, holdout=holdout), fedquilt.ditto(base, holdout=holdout)
    left, right = run(plain, rounds=4), run(ditto, rounds=4)
    assert left.digest == right.digest
    assert timeless(left.history) == timeless(right.history)  # bytes and steps too


def test_buffers_of_the_shared_model_too(run, normalised):
    base = fedquilt.fed_avg(fraction=0.5, batch=INF)
    plain, ditto = fedquilt.own_test(base), fedquilt.ditto(base, batch=INF)
    assert run(plain, rounds=3, module=normalised).digest == run(ditto, rounds=3, module=normalised).digest


def test_without_a_pull_it_is_local_training(run):
    """Full batches and all clients: the same as local_only, whose draws are its own, up to the rounding of the mean."""
    base = fedquilt.fed_avg(fraction=1.0, batch=8)
    ditto = run(fedquilt.ditto(base, pull=0.0, lr=0.2, epochs=2, batch=INF), rounds=4)
    alone = run(fedquilt.local_only(lr=0.2, epochs=2, batch=INF), rounds=4)
    for k, group in enumerate(alone.run.groups):
        assert (own(ditto)[k] - group.state.model.vector).abs().max() < 1e-6
    assert ditto.history.records[-1]["per_client_accuracy"] == alone.history.records[-1]["per_client_accuracy"]


def test_own_accuracy_is_that_of_the_own_models_on_what_is_held_out(run, blobs, unbalanced, smooth):
    result = run(fedquilt.ditto(fedquilt.fed_avg(fraction=0.5, batch=8), holdout=0.3), rounds=2)
    _, tested = hold_out(unbalanced, 0.3, seed=1)
    right = total = 0
    for k in range(6):
        rows = torch.from_numpy(tested.client(k))
        vector = own(result).get(k, result.state.vector)  # a client that never took part has the shared model
        torch.nn.utils.vector_to_parameters(vector, smooth.parameters())
        right += int((smooth(blobs.train.x[rows]).argmax(dim=1) == blobs.train.y[rows]).sum())
        total += len(rows)
    assert result.history.records[-1]["per_client_accuracy"] == right / total


def test_a_client_that_is_not_selected_keeps_its_model(run):
    method = fedquilt.ditto(fedquilt.fed_avg(fraction=0.5, batch=8))
    before, after = run(method, rounds=3), run(method, rounds=4)
    untouched = set(own(before)) - set(after.history.records[3]["clients"])
    assert untouched
    assert all(torch.equal(own(before)[k], own(after)[k]) for k in untouched)


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_sends_nan_keeps_no_model_and_disturbs_no_other(run, poisoned, unbalanced):
    method = fedquilt.ditto(fedquilt.fed_avg(lr=0.2, fraction=1.0, batch=INF), pull=0.0, batch=INF, holdout=0.0)
    clean, dirty = run(method), run(method, data=poisoned(unbalanced.client(1)[:1]))
    assert set(own(dirty)) == {0, 2, 3, 4, 5}
    assert all(torch.equal(v, own(clean)[k]) for k, v in own(dirty).items())


def test_it_does_not_go_with_another_way_to_make_the_model_ones_own():
    with pytest.raises(SpecError, match=r"ditto and fine_tuned both set `per_client\.personalise`"):
        fedquilt.fine_tuned(fedquilt.ditto(fedquilt.fed_avg()))
