"""Transforms in the places where they can stand, and their limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import fedquilt
from fedquilt.algorithm.parts.directions import add_noise, clip_by_norm, project_to_ball, pull_to_start
from fedquilt.algorithm.transform import chain

COMMON: dict[str, Any] = {"lr": 0.1, "fraction": 0.5, "batch": 10}
INF = float("inf")


def train(blobs, unbalanced, smooth, engine=None, rounds=3, **parts):
    method = replace(fedquilt.fed_avg(**COMMON), **parts)
    return fedquilt.train(smooth, blobs, unbalanced, method, rounds=rounds, seed=1, engine=engine or fedquilt.inline())


@pytest.mark.parametrize(
    "parts",
    [
        {"upload": clip_by_norm(INF)},
        {"upload": add_noise(0.0)},
        {"local": chain(pull_to_start(0.0), fedquilt.fed_avg(**COMMON).local)},
    ],
    ids=["no limit", "no noise", "no pull"],
)
def test_limits_that_change_nothing_are_fed_avg_to_the_bit(parts, blobs, unbalanced, smooth):
    assert train(blobs, unbalanced, smooth, **parts).digest == train(blobs, unbalanced, smooth).digest


@pytest.mark.parametrize("centre", ["origin", "start"])
def test_a_ball_without_bounds_is_fed_avg(centre, blobs, unbalanced, smooth):
    local = chain(fedquilt.fed_avg(**COMMON).local, project_to_ball(INF, centre))
    apart = train(blobs, unbalanced, smooth, local=local).state.vector - train(blobs, unbalanced, smooth).state.vector
    assert apart.abs().max() < 1e-5


def test_every_local_model_stays_in_the_ball(blobs, unbalanced, smooth):
    """A mean of points of a ball lies in it; the first model is outside of this one."""
    local = chain(fedquilt.fed_avg(**COMMON).local, project_to_ball(1.0))
    assert torch.linalg.vector_norm(train(blobs, unbalanced, smooth).state.vector) > 1.5
    assert torch.linalg.vector_norm(train(blobs, unbalanced, smooth, local=local).state.vector) < 1.0 + 1e-5


def test_around_the_start_no_round_goes_further_than_the_radius(blobs, unbalanced, smooth):
    local = chain(fedquilt.fed_avg(**COMMON).local, project_to_ball(0.05, "start"))
    one, two = (train(blobs, unbalanced, smooth, rounds=n, local=local).state.vector for n in (1, 2))
    assert torch.linalg.vector_norm(two - one) < 0.05 + 1e-6


def test_a_clipped_update_is_no_longer_than_the_limit(blobs, unbalanced, smooth):
    one, two = (train(blobs, unbalanced, smooth, rounds=n, upload=clip_by_norm(0.01)).state.vector for n in (1, 2))
    assert torch.linalg.vector_norm(two - one) < 0.01 + 1e-6


@pytest.mark.parametrize("place", ["local", "upload"])
def test_noise_is_keyed_and_the_same_in_every_engine(place, blobs, unbalanced, smooth):
    base = fedquilt.fed_avg(**COMMON)
    parts = {place: chain(add_noise(0.1), add_noise(0.1), getattr(base, place))}
    first = train(blobs, unbalanced, smooth, **parts)
    assert first.digest == train(blobs, unbalanced, smooth, engine=fedquilt.processes(workers=2), **parts).digest
    assert first.digest != train(blobs, unbalanced, smooth).digest


def test_two_noises_in_a_chain_are_independent(blobs, unbalanced, smooth):
    """N(0, s²) + N(0, s²) has variance 2s²; the same draw twice would have 4s²."""
    plain, noisy = (
        train(blobs, unbalanced, smooth, rounds=1, upload=upload).state.vector
        for upload in (chain(), chain(add_noise(1.0), add_noise(1.0)))
    )
    sizes = torch.tensor([5.0, 100.0, 17.0, 60.0, 38.0, 20.0])
    clients = fedquilt.train(
        smooth, blobs, unbalanced, fedquilt.fed_avg(**COMMON), rounds=1, seed=1, engine=fedquilt.inline()
    ).history.records[0]["clients"]
    shares = sizes[clients] / sizes[clients].sum()
    expected = float(2 * (shares**2).sum())
    assert (noisy - plain).var().item() == pytest.approx(expected, rel=0.5)


def test_the_pull_is_the_gradient_of_the_proximal_term(blobs, unbalanced, smooth):
    """With μ = 1/lr the second local step starts with a pull that undoes the first: w ← w − lr·(g + (w − w_t)/lr)."""
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=2, batch=INF)
    pooled = unbalanced.pooled()
    pulled = replace(base, local=chain(pull_to_start(10.0), base.local))
    result = fedquilt.train(smooth, blobs, pooled, pulled, rounds=1, engine=fedquilt.inline())
    first = torch.nn.functional.cross_entropy(smooth(blobs.train.x), blobs.train.y)
    after = [
        p - 0.1 * g for p, g in zip(smooth.parameters(), torch.autograd.grad(first, smooth.parameters()), strict=True)
    ]
    names = dict(zip([name for name, _ in smooth.named_parameters()], after, strict=True))
    outputs = torch.func.functional_call(smooth, names, (blobs.train.x,))
    second = torch.autograd.grad(torch.nn.functional.cross_entropy(outputs, blobs.train.y), after)
    for start, g, end in zip(smooth.parameters(), second, result.model.parameters(), strict=True):
        assert torch.allclose(start - 0.1 * g, end, atol=1e-6)
