"""One-shot averaging (Zinkevich 2010) against one round of FedAvg, and when its clients stop."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

import fedquilt
from fedquilt.methods.one_shot import LossStandsStill

INF = float("inf")


@pytest.mark.parametrize("batch", [8, INF])
def test_clients_that_never_stop_make_one_round_of_fed_avg_to_the_bit(batch, run):
    """`patience` passes without a fall cannot be had in as many passes, of which the first has none before it."""
    shot = run(fedquilt.one_shot(batch=batch, patience=5, max_epochs=5), rounds=3)
    avg = run(fedquilt.fed_avg(fraction=1.0, epochs=5, batch=batch))
    assert shot.digest == avg.digest
    assert shot.history.records[0]["steps"] == avg.history.records[0]["steps"]


def test_training_ends_after_one_round(run):
    result = run(fedquilt.one_shot(max_epochs=2), rounds=7)
    assert len(result.history) == 1
    assert sorted(result.history.records[0]["clients"]) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("tolerance", "patience", "passes"), [(0.44, 1, 2), (0.44, 3, 4), (0.43, 1, 9)])
def test_when_a_quadratic_stops(tolerance, patience, passes, quadratics):
    """F = (w − 2)²/2 by full steps of rate 1/4: F falls to (3/4)² = 0.5625 of itself in a pass, by 0.4375.

    The loss of a pass is that before its step. With a tolerance of 0.44 no pass counts as a fall: the client stops after
    the second, or with patience p after p + 1; with 0.43 it goes on to the end.
    """
    clients = quadratics((1,), (2,), (3,))
    method = fedquilt.one_shot(lr=0.25, batch=INF, tolerance=tolerance, patience=patience, max_epochs=9)
    result = clients.train(method=method)
    assert result.history.records[0]["steps"] == passes
    assert result.history.records[0]["examples"] == 3 * passes
    assert result.state.vector.item() == pytest.approx(2 - 2 * 0.75**passes, abs=1e-6)


@pytest.mark.parametrize("patience", [1, 2])
def test_every_client_stops_by_its_own_losses(patience, run, blobs, unbalanced, smooth):
    """A plain loop with the criterion as it is stated; the models are averaged with n_k / n."""
    tolerance, lr, most = 0.02, 0.5, 60
    method = fedquilt.one_shot(lr=lr, batch=INF, tolerance=tolerance, patience=patience, max_epochs=most)
    result = run(method)
    mean, passes = [torch.zeros_like(p) for p in smooth.parameters()], []
    for k in range(6):
        local, rows = copy.deepcopy(smooth), torch.from_numpy(unbalanced.client(k))
        descent, losses, calm = torch.optim.SGD(local.parameters(), lr=lr), [], 0
        while len(losses) < most and calm < patience:
            descent.zero_grad()
            loss = functional.cross_entropy(local(blobs.train.x[rows]), blobs.train.y[rows])
            loss.backward()
            descent.step()
            losses.append(loss.item())
            if len(losses) > 1:
                calm = 0 if losses[-2] - losses[-1] > tolerance * losses[-2] else calm + 1
        passes.append(len(losses))
        for total, p in zip(mean, local.parameters(), strict=True):
            total.add_(p.detach() * len(rows) / 240)
    assert result.history.records[0]["steps"] == sum(passes)
    assert len(set(passes)) > 1
    for expected, found in zip(mean, result.model.parameters(), strict=True):
        assert torch.allclose(expected, found, atol=2e-6)


def test_a_pass_of_several_batches_is_judged_as_a_whole(quadratics):
    """Three batches of one example: the losses of a pass are (9/16)^(3i), (9/16)^(3i+1), (9/16)^(3i+2) of the first.

    Their mean falls by 1 − (9/16)³ = 0.822 in a pass, and training stops at the end of one only.
    """
    clients = quadratics((1,), (2,), (3,))
    for tolerance, passes in ((0.83, 2), (0.81, 4)):
        method = fedquilt.one_shot(lr=0.25, batch=1, tolerance=tolerance, max_epochs=4)
        assert clients.train(method=method).history.records[0]["steps"] == 3 * passes


def test_a_loss_that_rises_or_is_not_a_number_has_not_fallen():
    done = LossStandsStill(tolerance=0.0, patience=1)
    assert not done([1.0])
    assert done([1.0, 2.0])
    assert done([1.0, float("nan")])
    assert done([1.0, 1.0])
    assert not done([1.0, 0.999])


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_sends_nan_is_left_out(run, poisoned, unbalanced):
    result = run(fedquilt.one_shot(max_epochs=4), data=poisoned(unbalanced.client(1)[:1]))
    assert [entry["client"] for entry in result.history.records[0]["dropped"]] == [1]
    assert torch.isfinite(result.state.vector).all()
