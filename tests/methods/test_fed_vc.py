"""FedVC (Hsu 2020, §5.3): sizes, selection, weights, and what it is when clients are equal."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.algorithm.algorithm import claim, initial_state
from fedquilt.algorithm.parts.sampling import Resample
from fedquilt.algorithm.parts.selection import BySize
from fedquilt.algorithm.state import Group
from fedquilt.base.errors import SpecError
from fedquilt.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.plan import plan


def test_with_equal_clients_and_the_same_draw_it_is_fed_avg(blobs, smooth):
    """N_VC = n_k = 40, E = 1: the resample is the epoch's permutation, and equal weights are n_k / n."""
    equal = Partition.by_sizes(np.arange(240), np.full(6, 40))
    plain = fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=10)
    virtual = replace(fedquilt.fed_vc(plain, size=40), select=plain.select)
    results = [
        fedquilt.train(smooth, blobs, equal, method, rounds=5, engine=fedquilt.inline()) for method in (plain, virtual)
    ]
    assert (results[0].state.vector - results[1].state.vector).abs().max() < 1e-6


@pytest.mark.parametrize("distinct", [True, False])
def test_rounds_by_hand_where_the_resample_cannot_matter(distinct, quadratics):
    """F = (w − b)²/2, η = 1/2: S steps end at b + (w_t − b)/2^S. N_VC = 4 and B = 2 make S = 2, whatever n_k is.

    Optima 4 and 1, with 1 and 5 equal examples: both take two steps, and count the same. A round's model is the mean over
    its slots of 3/4·b, plus w_t/4. With each client once that is 15/8 + w_t/4: 15/8, then 75/32, then 315/128.
    """
    clients = quadratics((1, 1), (4, 1), (1, 5))
    wrap = partial(fedquilt.fed_vc, size=4, distinct=distinct)
    result = clients.train(wrap, rounds=8, lr=0.5, batch=2)
    cohorts = [record["clients"] for record in result.history]
    assert all(sorted(cohort) == [0, 1] for cohort in cohorts) is distinct
    w = 0.0
    for cohort in cohorts:
        w = sum(0.75 * (4, 1)[k] for k in cohort) / 2 + w / 4
    assert result.state.vector.item() == pytest.approx(w, abs=1e-6)
    if distinct:
        for rounds, expected in ((1, 15 / 8), (2, 75 / 32), (3, 315 / 128)):
            found = clients.train(wrap, rounds=rounds, lr=0.5, batch=2).state.vector.item()
            assert found == pytest.approx(expected, abs=1e-6)


def test_every_client_trains_on_exactly_n_vc_examples_in_n_vc_over_b_steps(blobs, unbalanced, smooth):
    method = fedquilt.fed_vc(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8), size=32)
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=3, engine=fedquilt.inline())
    for record in result.history:
        assert record["examples"] == 32 * 6
        assert record["steps"] == 4 * 6


def test_resampling_is_without_replacement_only_where_there_is_enough():
    sample = Resample(32, batch=8)
    assert len(set(sample(100, np.random.default_rng(0)).order.tolist())) == 32
    few = sample(5, np.random.default_rng(0)).order
    assert len(few) == 32
    assert set(few.tolist()) <= set(range(5))


def test_clients_are_drawn_in_proportion_to_their_size(federate, unbalanced):
    """12,000 slots over sizes 5, 100, 17, 60, 38, 20: within five standard deviations of n_k / n each."""
    method = fedquilt.fed_vc(fedquilt.fed_avg(fraction=0.5), size=20)
    federation = federate(method)
    state = initial_state(method, federation.initial)
    drawn = np.concatenate([plan(method, Group(state), federation.population, seed).clients for seed in range(4000)])
    share = unbalanced.sizes / unbalanced.sizes.sum()
    found = np.bincount(drawn, minlength=6) / len(drawn)
    assert (np.abs(found - share) < 5 * np.sqrt(share * (1 - share) / len(drawn))).all()


def test_a_client_may_fill_two_slots_with_different_resamples(linears):
    """Example i is e_i, and one step on 16 of them moves w by 1/16 along each: an update shows the rows that were drawn.

    Client 0, with 39 of 40 examples, fills both slots in some rounds. Two independent draws of 16 of 39 are the same with a
    chance of 1 in C(39, 16), about 4·10¹⁰; the round's step is the mean of the two.
    """
    clients = linears(np.eye(40), sizes=(39, 1))
    method = partial(fedquilt.fed_vc, size=16)
    records = clients.train(method, rounds=6, batch=16).history.records
    number = next(record["round"] for record in records[1:] if record["clients"] == [0, 0])
    before, after = (clients.train(method, rounds=n, batch=16).state.vector for n in (number - 1, number))
    federation = Federation.of(*clients.federation(method, batch=16), 1)
    state = initial_state(federation.algorithm, federation.initial)
    first, second = (
        federation.site.run_client(state, number, client=0, slot=slot, client_state=None).delta for slot in (0, 1)
    )
    for update in (first, second):
        assert sorted(update.tolist()) == [0.0] * 24 + [1 / 16] * 16
    assert set(torch.nonzero(first).flatten().tolist()) != set(torch.nonzero(second).flatten().tolist())
    assert torch.allclose(after - before, (first + second) / 2, atol=1e-6)


def test_distinct_slots_never_hold_one_client_twice():
    sizes = np.array([239, 1])
    drawn = [BySize(1.0, distinct=True)(sizes, np.random.default_rng(seed)).tolist() for seed in range(20)]
    assert all(clients in ([0, 1], [1, 0]) for clients in drawn)


@pytest.mark.parametrize(
    ("base", "size", "message"),
    [
        (
            fedquilt.fed_avg(batch=10),
            256,
            "must be a multiple of the method's batch size, 10, such as 250 or 260, got 256",
        ),
        (fedquilt.fed_avg(epochs=5, batch=8), 256, "epochs must be 1, got 5"),
        (fedquilt.centralised(steps=3), 300, "needs a method that selects clients uniformly"),
    ],
)
def test_what_it_cannot_wrap(base, size, message):
    with pytest.raises(SpecError, match=message):
        fedquilt.fed_vc(base, size=size)


def test_contradicting_wrappers_are_named():
    once = fedquilt.fed_vc(fedquilt.fed_avg(batch=8), size=16)
    with pytest.raises(SpecError, match="fed_vc and other both set `weigh`"):
        claim(once, "other", weigh=float)


def test_it_composes_with_momentum_prox_projection_and_noise(blobs, unbalanced, smooth):
    method = fedquilt.fed_vc(fedquilt.fed_avg_m(lr=0.05, fraction=0.5, batch=8), size=32)
    method = fedquilt.projected(fedquilt.gradient_noise(fedquilt.fed_prox(method, mu=0.1), std=1e-3), radius=4.0)
    first, second = (
        fedquilt.train(smooth, blobs, unbalanced, method, rounds=6, engine=engine)
        for engine in (fedquilt.inline(), fedquilt.processes(workers=2))
    )
    assert first.digest == second.digest
    assert first.history.loss[-1] < first.history.loss[0]
