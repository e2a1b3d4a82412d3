"""Projection and gradient noise (Ozdayi 2020, §3.2) against hand-derived numbers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.base.rng import generator


class Pair(nn.Module):
    """⟨x, (u, v)⟩, with u and v parameters of their own: the norm is over both."""

    def __init__(self, u, v):
        super().__init__()
        self.u, self.v = nn.Parameter(torch.tensor([u])), nn.Parameter(torch.tensor([v]))

    def forward(self, x):
        return (x @ torch.cat([self.u, self.v]))[:, None]


@pytest.mark.parametrize(("centre", "second"), [("origin", 145 / 64), ("start", 213 / 64)])
def test_two_rounds_on_a_line_by_hand(quadratics, centre, second):
    """F = (w − b)²/2, η = 3/2: a step goes beyond the optimum, w ← 3b/2 − w/2. Optima 2 and 10, two steps, M = 5/2.

    Round 1, from 0, where both balls are the same: 3 → 5/2, then 7/4 (without projection 3/2, which is in the ball: it is
    applied after every step, not after the last); 15 → 5/2, then 55/4 → 5/2. The mean is 17/8.
    Round 2: client 1 goes to 31/16, then 65/32, inside both balls. Client 2 goes to 223/16 and beyond: it stays at the end
    of its ball, at 5/2 around the origin, at 17/8 + 5/2 = 37/8 around the start. The mean is 145/64, or 213/64.
    """
    clients = quadratics((1, 1), (2, 10), (2, 2))
    wrap = partial(fedquilt.projected, radius=2.5, centre=centre)
    for rounds, expected in ((1, 17 / 8), (2, second)):
        assert clients.train(wrap, rounds=rounds, lr=1.5).state.vector.item() == pytest.approx(expected, abs=1e-6)


def test_a_ball_around_the_origin_in_the_plane_by_hand(linears):
    """From (0, 33), steps of (44, 0), M = 35: (44, 33) has the norm 55, and becomes (28, 21); (72, 21) has the norm 75.

    That becomes 35/75·(72, 21) = (33.6, 9.8). A second client goes the other way, to (−33.6, 9.8): the mean is (0, 9.8).
    """
    wrap = partial(fedquilt.projected, radius=35.0)
    alone, both = linears([[44, 0]] * 2, sizes=(2,)), linears([[44, 0]] * 2 + [[-44, 0]] * 2, sizes=(2, 2))
    for clients, expected in ((alone, (33.6, 9.8)), (both, (0, 9.8))):
        found = clients.train(wrap, module=Pair(0.0, 33.0), batch=1).state.vector
        assert found.tolist() == pytest.approx(expected, abs=1e-4)


def test_a_ball_around_the_start_in_the_plane_by_hand(linears):
    """From (0, 33), steps of (30, 40), M = 35: the step, 50 long, ends 35 away, at (21, 61); the second ends there too.

    The next round starts from there, and goes as far again: (42, 89).
    """
    clients = linears([[30, 40]] * 2, sizes=(2,))
    wrap = partial(fedquilt.projected, radius=35.0, centre="start")
    for rounds, expected in ((1, (21, 61)), (2, (42, 89))):
        found = clients.train(wrap, rounds=rounds, module=Pair(0.0, 33.0), batch=1).state.vector
        assert found.tolist() == pytest.approx(expected, abs=1e-4)


def test_noise_on_a_constant_gradient_is_the_sum_of_its_draws(linears):
    """g_k = −x_k: S steps end at w_t − η·(S·g_k + std·Σ ξ), the ξ drawn one after the other for (round, client, slot)."""
    x, steps, lr, std = np.array([[1.0, 0.0, -2.0], [0.5, 3.0, 1.0]]), (3, 1), 0.25, 0.5
    clients = linears(np.repeat(x, steps, axis=0), sizes=steps)
    result = clients.train(partial(fedquilt.gradient_noise, std=std), rounds=2, lr=lr, batch=1, seed=5)
    w = np.zeros(3)
    for number, record in enumerate(result.history, start=1):
        ends = {}
        for slot, k in enumerate(record["clients"]):
            rng = generator(5, "local noise", number, k, slot)
            noise = sum(rng.standard_normal((1, 3), dtype=np.float32)[0] for _ in range(steps[k]))
            ends[k] = w - lr * (-steps[k] * x[k] + std * noise)
        w = 3 / 4 * ends[0] + 1 / 4 * ends[1]
    assert result.state.vector.tolist() == pytest.approx(w.tolist(), abs=1e-6)


def test_noise_has_mean_0_and_adds_up_over_steps_clients_and_rounds(linears):
    """R rounds of S steps at K equal clients: w = R·S·η·x + N(0, (η·std)²·R·S/K) in every coordinate, all draws being new.

    Over d = 20,000 coordinates, mean and variance within five standard errors, σ/√d and σ²·√(2/d): a right implementation
    fails for about one seed in 900,000. Draws shared by steps, clients or rounds would at least double the variance.
    """
    d, rounds, steps, k, lr, std = 20_000, 2, 4, 2, 0.5, 0.1
    clients = linears(np.ones((k * steps, d)), sizes=(steps,) * k)
    result = clients.train(partial(fedquilt.gradient_noise, std=std), rounds=rounds, lr=lr, batch=1)
    noise = result.state.vector.double() - rounds * steps * lr
    variance = (lr * std) ** 2 * rounds * steps / k
    assert abs(float(noise.mean())) < 5 * (variance / d) ** 0.5
    assert abs(float(noise.var()) / variance - 1) < 5 * (2 / d) ** 0.5
