"""FedAdagrad, FedYogi and FedAdam (Reddi 2021) against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.state import ClientStore, Group
from fedquilt.algorithm.transform import At
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import SpecError
from fedquilt.base.records import describe
from fedquilt.methods.fed_opt import fed_adagrad, fed_adam, fed_yogi
from fedquilt.methods.median import median
from fedquilt.round.merge import merge
from fedquilt.round.plan import plan

COMMON = {"lr": 0.1, "fraction": 0.5, "batch": 10}
BETA2 = 0.8
RULES = {
    fed_adagrad: lambda v, square: v + square,
    fed_yogi: lambda v, square: v - (1 - BETA2) * square * np.sign(v - square),
    fed_adam: lambda v, square: BETA2 * v + (1 - BETA2) * square,
}
EVERY = pytest.mark.parametrize("wrapper", RULES, ids=lambda wrapper: wrapper.__name__)


def arguments(wrapper):
    return {} if wrapper is fed_adagrad else {"beta2": BETA2}


@EVERY
def test_five_rounds_are_those_of_a_plain_loop(wrapper, federate):
    """As printed: m ← β₁m + (1 − β₁)Δ; v by its rule, from τ²; x ← x + η_t·m / (√v + τ), with η_t = 0.05·0.9^(t−1)."""
    beta1, tau = 0.7, 1e-2
    plain = fedquilt.fed_avg(**COMMON)
    rate = {"initial": 0.05, "factor": 0.9}
    method = wrapper(plain, server_lr=rate, beta1=beta1, tau=tau, **arguments(wrapper))
    federation = federate(method)
    state = initial_state(method, federation.initial)
    x = federation.initial.vector.double().numpy()
    m, v = np.zeros_like(x), np.full_like(x, tau**2)
    with fedquilt.inline().open(federation) as session:
        for number in range(5):
            planned = plan(method, Group(state), federation.population, 1)
            updates = list(session.run(planned, state, ClientStore()))
            weight = sum(update.weight for update in updates)
            delta = sum(update.weight / weight * update.delta.double().numpy() for update in updates)
            m = beta1 * m + (1 - beta1) * delta
            v = RULES[wrapper](v, delta**2)
            x = x + 0.05 * 0.9**number * m / (np.sqrt(v) + tau)
            state, _ = merge(method, federation.layout, state, planned, updates)
            assert np.abs(state.model.vector.double().numpy() - x).max() < 1e-6


def test_two_steps_by_hand():
    """β₁ = ½, β₂ = ¾, τ = 1, η = 1, Δ = 3 and then 1. m = 3/2, then 5/4; v starts at τ² = 1.

    Adagrad: v = 1 + 9 = 10, then 11. Adam: v = 3/4 + 9/4 = 3, then 9/4 + 1/4 = 5/2.
    Yogi: v < Δ², v = 1 + 9/4 = 13/4; then v > Δ², v = 13/4 − 1/4 = 3.
    """
    base, w = fedquilt.fed_avg(), {"model": torch.zeros(1)}
    at = At(w, w, [torch.tensor(1.0)])
    for wrapper, more, seconds in (
        (fed_adagrad, {}, (10, 11)),
        (fed_adam, {"beta2": 0.75}, (3, 2.5)),
        (fed_yogi, {"beta2": 0.75}, (3.25, 3)),
    ):
        server = wrapper(base, server_lr=1.0, beta1=0.5, tau=1.0, **more).server
        state = server.init(w)
        for delta, first, second in zip((3.0, 1.0), (1.5, 1.25), seconds, strict=True):
            step, state = server.update({"model": torch.tensor([-delta])}, state, at)
            assert step["model"].item() == pytest.approx(first / (second**0.5 + 1), rel=1e-6)
            assert state["v"]["model"].item() == pytest.approx(second, rel=1e-6)


@EVERY
def test_with_a_large_tau_it_tends_to_fed_avg(wrapper, blobs, unbalanced, smooth):
    """β₁ = 0 and τ → ∞: √v → τ for Adagrad; with η = 2τ the step is 2τΔ / (τ + τ) = Δ. For Yogi and Adam, β₂ → 1."""
    more = {} if wrapper is fed_adagrad else {"beta2": 1 - 1e-12}
    base = fedquilt.fed_avg(**COMMON)
    method = wrapper(base, server_lr=2e4, beta1=0.0, tau=1e4, **more)
    far, near = (
        fedquilt.train(smooth, blobs, unbalanced, one, rounds=3, engine=fedquilt.inline()).state.vector
        for one in (method, base)
    )
    assert (far - near).abs().max() < 1e-5


@EVERY
def test_no_coordinate_moves_much_further_than_the_rate(wrapper, blobs, unbalanced, smooth):
    """In the first round |m| / (√v + τ) = (1 − β₁)|Δ| / (√v + τ) ≤ (1 − β₁) / √(1 − β₂) (Adagrad: ≤ 1 − β₁)."""
    method = wrapper(fedquilt.fed_avg(**COMMON), server_lr=0.01)
    after = fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline()).state.vector
    before = torch.cat([p.detach().flatten() for p in smooth.parameters()])
    assert 0 < (after - before).abs().max() <= 0.01 * 0.1 / 0.01**0.5 + 1e-6


@EVERY
def test_a_second_optimiser_at_the_server_is_refused_by_both_names(wrapper):
    with pytest.raises(SpecError, match=f"fed_avg_m and {wrapper.__name__} both set `server`"):
        wrapper(fedquilt.fed_avg_m())
    once = wrapper(fedquilt.fed_avg())
    assert describe(wrapper(once)) == describe(once)
    with pytest.raises(SpecError, match=f"{wrapper.__name__} is applied twice, with different values"):
        wrapper(once, tau=1e-2)


def test_the_three_differ_and_every_argument_counts():
    base = fedquilt.fed_avg()
    servers = [wrapper(base).server for wrapper in RULES]
    for wrapper in RULES:
        servers += [wrapper(base, **{key: 0.5}).server for key in ("server_lr", "beta1", "tau")]
    servers += [wrapper(base, beta2=0.5).server for wrapper in (fed_adam, fed_yogi)]
    assert len({describe(server) for server in servers}) == len(servers)


def test_it_goes_with_a_robust_reduction():
    assert dict(fed_adam(median(fedquilt.fed_avg())).applied.claims) == {"reduce": "median", "server": "fed_adam"}


@EVERY
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"server_lr": 0.0}, "server_lr: must be greater than 0"),
        ({"beta1": 1.0}, "beta1: must be less than 1"),
        ({"tau": 0.0}, "tau: must be greater than 0"),
    ],
)
def test_wrong_values_are_refused(wrapper, wrong, words):
    with pytest.raises(ArgumentError, match=words):
        wrapper(fedquilt.fed_avg(), **wrong)


@EVERY
def test_workers_do_not_matter(wrapper, blobs, unbalanced, smooth):
    method = wrapper(fedquilt.fed_avg(**COMMON))
    first, second = (
        fedquilt.train(smooth, blobs, unbalanced, method, rounds=3, engine=engine).digest
        for engine in (fedquilt.inline(), fedquilt.processes(workers=2))
    )
    assert first == second
