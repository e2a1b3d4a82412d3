"""SCAFFOLD (Karimireddy 2020), option II, against hand-derived numbers and plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.algorithm.parts.reduction import equally

INF = float("inf")


def variate(result):
    return result.run.groups[0].state.broadcast["scaffold"]["variate"].double()


def kept(result):
    return {client: state["scaffold"]["variate"] for client, state in result.run.store.items()}


def plain(slope, w, cohorts, steps, lr, population):
    """Algorithm 1 as printed, option II, η_g = 1; returns the model, the server's variate and the clients'."""
    c = torch.zeros_like(w)
    own = [torch.zeros_like(w) for _ in range(population)]
    for cohort in cohorts:
        moved, changed = torch.zeros_like(w), torch.zeros_like(w)
        for k in cohort:
            y = w.clone()
            for _ in range(steps[k]):
                y = y - lr * (slope(k, y) - own[k] + c)
            fresh = own[k] - c + (w - y) / (steps[k] * lr)
            moved, changed = moved + (y - w), changed + (fresh - own[k])
            own[k] = fresh
        w, c = w + moved / len(cohort), c + changed / population
    return w, c, own


def test_two_rounds_by_hand(quadratics):
    """F_1 = (w − 2)²/2, F_2 = w²/2, K = 2, η = 1/2, w = 0: a step halves the distance to where it goes, Kη = 1.

    Round 1: y = (3/2, 0), so w = 3/4, c_k = w − y = (−3/2, 0), c = −3/4.
    Round 2: client 1 goes to where y − 2 + 3/2 − 3/4 = 0, to 5/4, and gets from 3/4 to 9/8. Client 2 goes to 3/4, where it
    is. So w = 15/16; c_1 = −3/2 + 3/4 + (3/4 − 9/8) = −9/8, c_2 = 0 + 3/4 + 0 = 3/4, c = −3/16.
    """
    clients = quadratics((1, 1), (2, 0), (2, 2))
    first, second = (clients.train(fedquilt.scaffold, rounds=rounds, lr=0.5) for rounds in (1, 2))
    assert (first.state.vector.item(), variate(first).item()) == (3 / 4, -3 / 4)
    assert {k: c.item() for k, c in kept(first).items()} == {0: -3 / 2, 1: 0}
    assert (second.state.vector.item(), variate(second).item()) == (15 / 16, -3 / 16)
    assert {k: c.item() for k, c in kept(second).items()} == {0: -9 / 8, 1: 3 / 4}


def test_it_finds_the_minimum_that_fed_avg_misses(quadratics):
    """Curvatures 1 and 4, optima 2 and 1, K = 5, η = 0.1: the mean loss is least at (1·2 + 4·1) / 5 = 1.2.

    FedAvg rests where Σ (1 − (1 − ηa_k)^K)(b_k − w) = 0 instead, at 1.3075.
    """
    clients = quadratics((1, 2), (2, 2), (5, 5))
    pulls = [1 - (1 - 0.1 * a) ** 5 for a in (1, 4)]
    biased = (pulls[0] * 2 + pulls[1] * 1) / sum(pulls)
    assert clients.train(rounds=60, lr=0.1).state.vector.item() == pytest.approx(biased, abs=1e-6)
    assert clients.train(fedquilt.scaffold, rounds=60, lr=0.1).state.vector.item() == pytest.approx(1.2, abs=1e-6)
    assert abs(biased - 1.2) > 0.1


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_a_plain_loop_with_part_of_the_clients_and_unequal_steps(fraction, quadratics):
    """Clients take 1, 4, 2 and 3 steps; the server's variate moves by the mean over all four."""
    clients = quadratics((1, 2, 1, 1), (2, 2, 0, 1), (1, 4, 2, 3))
    result = clients.train(fedquilt.scaffold, rounds=7, lr=0.1, fraction=fraction)
    cohorts = [record["clients"] for record in result.history]
    w, c, own = plain(clients.slope, torch.zeros(1, dtype=torch.float64), cohorts, clients.copies, 0.1, population=4)
    assert result.state.vector.item() == pytest.approx(w.item(), abs=1e-6)
    assert variate(result).item() == pytest.approx(c.item(), abs=2e-6)
    assert set(kept(result)) == {k for cohort in cohorts for k in cohort}
    for k, found in kept(result).items():
        assert found.item() == pytest.approx(own[k].item(), abs=4e-6)
    # An invariant of option II: c is the mean of all c_k, where all start at 0.
    assert c.item() == pytest.approx(float(np.mean([one.item() for one in own])), abs=1e-12)


def test_a_plain_loop_on_a_network(run, gradient, start):
    method = fedquilt.scaffold(fedquilt.fed_avg(lr=0.2, fraction=0.5, epochs=3, batch=INF))
    result = run(method, rounds=6)
    cohorts = [record["clients"] for record in result.history]
    w, c, _ = plain(gradient, start, cohorts, [3] * 6, 0.2, population=6)
    assert (result.state.vector - w).abs().max() < 2e-6
    assert (variate(result) - c).abs().max() < 5e-6


def test_a_client_that_is_not_selected_keeps_its_variate(run):
    method = fedquilt.scaffold(fedquilt.fed_avg(fraction=0.5, batch=8))
    before, after = run(method, rounds=3), run(method, rounds=4)
    cohort = after.history.records[3]["clients"]
    untouched = set(kept(before)) - set(cohort)
    assert untouched
    assert all(torch.equal(kept(before)[k], kept(after)[k]) for k in untouched)
    assert not any(torch.equal(kept(before)[k], kept(after)[k]) for k in set(kept(before)) & set(cohort))


def test_the_first_round_is_fed_avg_with_equal_weights_to_the_bit(run):
    base = fedquilt.fed_avg(fraction=0.5, batch=8, epochs=2)
    assert run(fedquilt.scaffold(base)).digest == run(replace(base, weigh=equally)).digest
    assert run(fedquilt.scaffold(base)).digest != run(base).digest


def test_with_one_full_batch_and_all_clients_it_is_gradient_descent_on_the_mean_loss(run, gradient, start):
    """K = 1: c_k is the gradient at the last model and c their mean, so that the corrections cancel in the mean."""
    result = run(fedquilt.scaffold(fedquilt.fed_avg(lr=0.3, fraction=1.0, batch=INF)), rounds=8)
    w = start
    for _ in range(8):
        before, w = w, w - 0.3 * sum(gradient(k, w) for k in range(6)) / 6
    assert (result.state.vector - w).abs().max() < 2e-6
    assert (kept(result)[2] - gradient(2, before)).abs().max() < 1e-5


def test_with_momentum_a_variate_is_still_a_mean_of_gradients(quadratics):
    """ρ = 1/2, K = 2, η = 1/2, w = 0, F = (w − 1)²/2: g = −1, y = 1/2; then g = −1/2, v = −1, y = 1.

    The first gradient acts 1 + ρ = 3/2 times, the second once: c = −(1·3/2 + 1/2·1) / (5/2) = −4/5.
    """
    result = quadratics((1,), (1,), (2,)).train(fedquilt.scaffold, lr=0.5, momentum=0.5)
    assert result.state.vector.item() == 1.0
    assert variate(result).item() == pytest.approx(-4 / 5, abs=1e-6)


def test_the_rate_of_the_round_makes_the_variate(quadratics):
    """With one step a round c_k is the gradient at the round's start, whatever the rate: here −1, then −1/2."""
    result = quadratics((1,), (1,), (1,)).train(fedquilt.scaffold, rounds=2, lr={"initial": 0.5, "factor": 0.5})
    assert variate(result).item() == -0.5


def test_the_bytes_are_doubled(run):
    base = fedquilt.fed_avg(fraction=0.5, batch=8)
    for plain_, doubled in zip(
        run(base, rounds=2).history, run(fedquilt.scaffold(base), rounds=2).history, strict=True
    ):
        assert plain_["bytes_up"] == plain_["bytes_down"] == 3 * 75 * 4
        assert doubled["bytes_up"] == doubled["bytes_down"] == 2 * 3 * 75 * 4


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_sends_nan_changes_no_variate(run, gradient, start, poisoned, unbalanced):
    """The others train as if it had not been selected; it counts among the N clients of the mean still."""
    method = fedquilt.scaffold(fedquilt.fed_avg(lr=0.2, fraction=1.0, epochs=2, batch=INF))
    result = run(method, rounds=3, data=poisoned(unbalanced.client(1)[:1]))
    assert [record["dropped"][0]["client"] for record in result.history] == [1, 1, 1]
    w, c, own = plain(gradient, start, [[0, 2, 3, 4, 5]] * 3, [2] * 6, 0.2, population=6)
    assert (result.state.vector - w).abs().max() < 2e-6
    assert (variate(result) - c).abs().max() < 5e-6
    assert set(kept(result)) == {0, 2, 3, 4, 5}
    assert all((found - own[k]).abs().max() < 1e-5 for k, found in kept(result).items())


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_diverges_is_left_out_and_the_others_go_on(run, blobs, unbalanced):
    """An update of 10^5 is still below the limit of 2^20; divided by K·η = 10^-3 it is far beyond."""
    x = blobs.train.x.clone()
    x[unbalanced.client(1)] *= 1e8
    data = replace(blobs, train=replace(blobs.train, x=x))
    torch.manual_seed(0)
    method = fedquilt.scaffold(fedquilt.fed_avg(lr=1e-3, fraction=1.0, batch=INF))
    result = run(method, rounds=2, module=nn.Linear(8, 3), data=data)
    for record in result.history:
        assert [entry["client"] for entry in record["dropped"]] == [1]
        assert record["dropped"][0]["reason"].startswith("sent a value of")
    assert set(kept(result)) == {0, 2, 3, 4, 5}
    assert torch.isfinite(variate(result)).all()


def test_wrapping_twice_is_wrapping_once(run):
    once = fedquilt.scaffold(fedquilt.fed_avg(fraction=0.5, batch=8))
    assert run(fedquilt.scaffold(once), rounds=3).digest == run(once, rounds=3).digest


@pytest.mark.parametrize("wrap", [fedquilt.scaffold, fedquilt.fed_dyn])
def test_a_client_that_takes_part_twice_in_a_round_is_refused(wrap, run):
    """It has one variate: two changes of it would take the server's away from the clients' mean for good."""
    base = fedquilt.fed_avg(fraction=1.0, batch=8)
    with pytest.raises(fedquilt.FedquiltError, match="fed_vc draws a client several times per round"):
        run(wrap(fedquilt.fed_vc(base, size=16)), rounds=3)
    run(wrap(fedquilt.fed_vc(base, size=16, distinct=True)), rounds=3)
