"""FedNova (Wang 2020) against hand-derived numbers and plain loops."""

from __future__ import annotations

import pytest
import torch

import fedquilt
from fedquilt.algorithm.transform import effective_steps

INF = float("inf")


def plain(slope, w, cohorts, sizes, steps, lr):
    """Δ = (Σ p_k τ_k) Σ p_k Δ_k / τ_k, p_k = n_k / n over the cohort."""
    for cohort in cohorts:
        total = sum(sizes[k] for k in cohort)
        mean, length = torch.zeros_like(w), 0.0
        for k in cohort:
            y = w.clone()
            for _ in range(steps[k]):
                y = y - lr * slope(k, y)
            mean = mean + sizes[k] / total * (y - w) / steps[k]
            length += sizes[k] / total * steps[k]
        w = w + length * mean
    return w


def test_one_round_by_hand(quadratics):
    """Optima 2 and 1, one and three steps of rate 1/2 from 0: Δ = (1, 7/8); p = (1/4, 3/4), mean steps 5/2.

    5/2 · (1/4 · 1/1 + 3/4 · 7/8 / 3) = 75/64, where FedAvg makes 1/4 + 3/4 · 7/8 = 29/32.
    """
    clients = quadratics((1, 1), (2, 1), (1, 3))
    assert clients.train(fedquilt.fed_nova, lr=0.5).state.vector.item() == pytest.approx(75 / 64, abs=1e-6)
    assert clients.train(lr=0.5).state.vector.item() == 29 / 32


def test_it_rests_near_the_minimum_of_the_weighted_loss_where_fed_avg_does_not(quadratics):
    """Optima 0 and 2, of p = 1/5 and 4/5; at a small rate every update is −η τ_k F_k'.

    FedNova rests where Σ p_k F_k' = 0, at 8/5; FedAvg where Σ p_k τ_k F_k' = 0, at 32/17.
    """
    clients = quadratics((1, 1), (0, 2), (1, 4))
    nova, avg = (clients.train(wrap, rounds=400, lr=0.01).state.vector.item() for wrap in (fedquilt.fed_nova, _same))
    assert nova == pytest.approx(8 / 5, abs=0.01)
    assert avg == pytest.approx(32 / 17, abs=0.01)


def _same(base):
    return base


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_a_plain_loop_with_unequal_steps(fraction, quadratics):
    """The weights and the mean number of steps are over those who took part."""
    clients = quadratics((1, 2, 1, 1), (2, 2, 0, 1), (1, 4, 2, 3))
    result = clients.train(fedquilt.fed_nova, rounds=6, lr=0.1, epochs=2, fraction=fraction)
    cohorts = [record["clients"] for record in result.history]
    steps = [2 * n for n in clients.copies]
    w = plain(clients.slope, torch.zeros(1, dtype=torch.float64), cohorts, clients.copies, steps, 0.1)
    assert result.state.vector.item() == pytest.approx(w.item(), abs=1e-6)


def test_where_all_take_one_step_it_is_fed_avg_to_the_bit(run):
    base = fedquilt.fed_avg(fraction=0.5, batch=INF)
    assert run(fedquilt.fed_nova(base), rounds=4).digest == run(base, rounds=4).digest


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_where_all_take_as_many_steps_it_is_fed_avg(momentum, run):
    base = fedquilt.fed_avg(fraction=0.5, batch=INF, epochs=5, momentum=momentum)
    nova, avg = run(fedquilt.fed_nova(base), rounds=4), run(base, rounds=4)
    assert (nova.state.vector - avg.state.vector).abs().max() < 1e-6


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_effective_steps_are_how_far_a_constant_gradient_goes(steps, momentum):
    """At rate 1 a gradient of −1 moves w by Σ v_t, v ← ρv + 1."""
    w = torch.zeros(1, requires_grad=True)
    descent = torch.optim.SGD([w], lr=1.0, momentum=momentum)
    for _ in range(steps):
        w.grad = -torch.ones(1)
        descent.step()
    assert effective_steps(steps, momentum) == pytest.approx(w.item(), rel=1e-6)


def test_with_momentum_updates_are_divided_by_their_effective_steps(quadratics):
    """ρ = 1/2, η = 1/2, from 0: p = (1/3, 2/3), Σpa = 2, and 2 · (1/3 + 2/3 · 2/5) = 6/5.

    Client 1, one step towards 2: Δ = 1, a = 1. Client 2, two steps towards 1: 1/2, then v = −1/2·1 − 1/2 = −1, so Δ = 1,
    a = 5/2.
    """
    result = quadratics((1, 1), (2, 1), (1, 2)).train(fedquilt.fed_nova, lr=0.5, momentum=0.5)
    assert result.state.vector.item() == pytest.approx(6 / 5, abs=1e-6)


def test_eight_bytes_more_go_up(run):
    base = fedquilt.fed_avg(fraction=0.5, batch=8)
    (plain_,), (more,) = run(base).history, run(fedquilt.fed_nova(base)).history
    assert more["bytes_up"] == plain_["bytes_up"] + 3 * 8
    assert more["bytes_down"] == plain_["bytes_down"]
    assert not list(run(fedquilt.fed_nova(base)).run.store.items())


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_sends_nan_has_no_say_in_the_steps(run, gradient, start, poisoned, unbalanced):
    """Client 1 has the most examples; its steps are not in the mean either."""
    method = fedquilt.fed_nova(fedquilt.fed_avg(lr=0.2, fraction=1.0, epochs=2, batch=INF))
    result = run(method, rounds=2, data=poisoned(unbalanced.client(1)[:1]))
    w = plain(gradient, start, [[0, 2, 3, 4, 5]] * 2, unbalanced.sizes.tolist(), [2] * 6, 0.2)
    assert (result.state.vector - w).abs().max() < 2e-6
