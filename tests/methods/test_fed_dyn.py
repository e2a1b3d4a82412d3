"""FedDyn (Acar 2021) against hand-derived numbers and plain loops."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

import fedquilt
from fedquilt.algorithm.parts.descent import sgd
from fedquilt.base.errors import SpecError

INF = float("inf")


def h_over_alpha(result):
    return result.run.groups[0].state.optimiser["model"]


def kept(result):
    return {client: state["fed_dyn"]["linear"] for client, state in result.run.store.items()}


def plain(slope, w, cohorts, steps, lr, alpha, population):
    """Algorithm 1, the local problem by gradient steps; returns the model, h and the clients' g_k."""
    h = torch.zeros_like(w)
    linear = [torch.zeros_like(w) for _ in range(population)]
    for cohort in cohorts:
        models = []
        for k in cohort:
            y = w.clone()
            for _ in range(steps[k]):
                y = y - lr * (slope(k, y) - linear[k] + alpha * (y - w))
            linear[k] = linear[k] - alpha * (y - w)
            models.append(y)
        h = h - alpha / population * sum(y - w for y in models)
        w = sum(models) / len(models) - h / alpha
    return w, h, linear


def test_three_rounds_by_hand(quadratics):
    """F_1 = (w − 2)²/2, F_2 = w²/2, α = 1; one step of rate 1/(1 + α) from w solves the local problem: θ = (w + b + g)/2.

    Round 1: θ = (1, 0), g = (−1, 0), h = −1/2, w = 1/2 + 1/2 = 1, the minimum of the mean loss.
    Round 2: θ = (1, 1/2), g = (−1, 1/2), h = −1/2 + 1/4 = −1/4, w = 3/4 + 1/4 = 1.
    Round 3: θ = (1, 3/4), g = (−1, 3/4), h = −1/8, w = 1. And g_k is the gradient of F_k at θ_k throughout.
    """
    clients = quadratics((1, 1), (2, 0), (1, 1))
    expected = {1: (-1 / 2, -1, 0), 2: (-1 / 4, -1, 1 / 2), 3: (-1 / 8, -1, 3 / 4)}
    for rounds, (h, first, second) in expected.items():
        result = clients.train(partial(fedquilt.fed_dyn, alpha=1.0), rounds=rounds, lr=0.5)
        assert result.state.vector.item() == 1.0
        assert h_over_alpha(result).item() == h
        assert {k: g.item() for k, g in kept(result).items()} == {0: first, 1: second}


def test_it_finds_the_minimum_that_fed_avg_misses(quadratics):
    """Curvatures 1 and 4, optima 2 and 1, many local steps: the mean loss is least at 1.2."""
    clients = quadratics((1, 2), (2, 2), (8, 8))
    result = clients.train(partial(fedquilt.fed_dyn, alpha=1.0), rounds=60, lr=0.1)
    assert result.state.vector.item() == pytest.approx(1.2, abs=1e-5)
    assert abs(clients.train(rounds=60, lr=0.1).state.vector.item() - 1.2) > 0.1


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_a_plain_loop_with_part_of_the_clients_and_unequal_steps(fraction, quadratics):
    """Models count equally, and h moves by the mean over all four clients."""
    clients = quadratics((1, 2, 1, 1), (2, 2, 0, 1), (1, 4, 2, 3))
    result = clients.train(partial(fedquilt.fed_dyn, alpha=0.5), rounds=7, lr=0.1, fraction=fraction)
    cohorts = [record["clients"] for record in result.history]
    begin = torch.zeros(1, dtype=torch.float64)
    w, h, linear = plain(clients.slope, begin, cohorts, clients.copies, 0.1, 0.5, population=4)
    assert result.state.vector.item() == pytest.approx(w.item(), abs=2e-6)
    assert 0.5 * h_over_alpha(result).item() == pytest.approx(h.item(), abs=2e-6)
    assert set(kept(result)) == {k for cohort in cohorts for k in cohort}
    for k, found in kept(result).items():
        assert found.item() == pytest.approx(linear[k].item(), abs=2e-6)
    # Acar 2021: h is the mean of all g_k, where all start at 0.
    assert h.item() == pytest.approx(sum(g.item() for g in linear) / 4, abs=1e-12)


def test_a_plain_loop_on_a_network(run, gradient, start):
    method = fedquilt.fed_dyn(fedquilt.fed_avg(lr=0.2, fraction=0.5, epochs=3, batch=INF), alpha=0.3)
    result = run(method, rounds=6)
    cohorts = [record["clients"] for record in result.history]
    w, h, _ = plain(gradient, start, cohorts, [3] * 6, 0.2, 0.3, population=6)
    assert (result.state.vector - w).abs().max() < 5e-6
    assert (0.3 * h_over_alpha(result) - h).abs().max() < 5e-6


def test_a_client_that_is_not_selected_keeps_its_vector(run):
    method = fedquilt.fed_dyn(fedquilt.fed_avg(fraction=0.5, batch=8), alpha=0.1)
    before, after = run(method, rounds=3), run(method, rounds=4)
    cohort = after.history.records[3]["clients"]
    untouched = set(kept(before)) - set(cohort)
    assert untouched
    assert all(torch.equal(kept(before)[k], kept(after)[k]) for k in untouched)


def test_nothing_more_is_sent(run):
    base = fedquilt.fed_avg(fraction=0.5, batch=8)
    for plain_, dyn in zip(run(base, rounds=2).history, run(fedquilt.fed_dyn(base), rounds=2).history, strict=True):
        assert (dyn["bytes_up"], dyn["bytes_down"]) == (plain_["bytes_up"], plain_["bytes_down"])


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_sends_nan_changes_neither_h_nor_the_others(run, gradient, start, poisoned, unbalanced):
    method = fedquilt.fed_dyn(fedquilt.fed_avg(lr=0.2, fraction=1.0, epochs=2, batch=INF), alpha=0.3)
    result = run(method, rounds=3, data=poisoned(unbalanced.client(1)[:1]))
    w, h, linear = plain(gradient, start, [[0, 2, 3, 4, 5]] * 3, [2] * 6, 0.2, 0.3, population=6)
    assert (result.state.vector - w).abs().max() < 5e-6
    assert (0.3 * h_over_alpha(result) - h).abs().max() < 5e-6
    assert set(kept(result)) == {0, 2, 3, 4, 5}
    assert all((found - linear[k]).abs().max() < 5e-6 for k, found in kept(result).items())


def test_wrapping_twice_is_wrapping_once_and_with_another_alpha_is_refused(run):
    once = fedquilt.fed_dyn(fedquilt.fed_avg(fraction=0.5, batch=8), alpha=0.1)
    assert run(fedquilt.fed_dyn(once, alpha=0.1), rounds=3).digest == run(once, rounds=3).digest
    with pytest.raises(SpecError, match="fed_dyn is applied twice, with different values"):
        fedquilt.fed_dyn(once, alpha=0.2)


def test_a_method_with_a_server_step_of_its_own_is_refused():
    """It would be lost: FedDyn's own step takes its place."""
    with pytest.raises(SpecError, match="fed_avg_m and fed_dyn both set `server`"):
        fedquilt.fed_dyn(fedquilt.fed_avg_m(momentum=0.9))
    with pytest.raises(SpecError, match="fed_dyn has its own server step"):
        fedquilt.fed_dyn(replace(fedquilt.fed_avg(), server=sgd(0.5)))
