"""Sign agreement (Ozdayi 2020, §3.4): what stands still, and what does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.algorithm.algorithm import initial_state
from fedquilt.algorithm.updates import ClientUpdate, Cohort
from fedquilt.round.merge import merge
from fedquilt.round.plan import Plan

BASE = {"fraction": 1.0, "lr": 0.1, "batch": float("inf")}


def merged(federation, method, deltas, state=None):
    """The server's step on given updates of the first coordinates; the others get 0."""
    layout = federation.layout
    count = len(deltas)
    planned = Plan(1, 1, np.arange(count), np.full(count, 10), 10.0 * count, count)
    updates = []
    for slot, delta in enumerate(deltas):
        vector = torch.zeros(layout.size)
        vector[: len(delta)] = torch.tensor(delta)
        empty = torch.zeros(0)
        updates.append(ClientUpdate(slot, slot, vector, empty, torch.zeros(0, dtype=torch.int64), 10.0, 1.0, 1, 10))
    state = state or initial_state(method, federation.initial)
    after, _ = merge(method, layout, state, planned, updates)
    return (after.model.vector - state.model.vector)[: len(deltas[0])], after


UPDATES = [[1.0, -1.0, 1.0, 0.0], [3.0, -3.0, -1.0, 2.0]]
"""Two clients: both up, both down, against each other, one without an opinion. Means and sums of signs: 2, −2, 0, 1."""


def test_two_clients_by_hand(federate):
    """θ = 2: of the means (2, −2, 0, 1) the first two move."""
    method = fedquilt.sign_agreement(fedquilt.fed_avg(**BASE), threshold=2)
    step, _ = merged(federate(method), method, UPDATES)
    assert torch.allclose(step, torch.tensor([2.0, -2.0, 0.0, 0.0]), atol=1e-6)


def test_as_printed_it_also_silences_what_all_agree_to_lower(federate):
    """Without the absolute value −2 < θ: only the first moves."""
    method = fedquilt.sign_agreement(fedquilt.fed_avg(**BASE), threshold=2, absolute=False)
    step, _ = merged(federate(method), method, UPDATES)
    assert torch.allclose(step, torch.tensor([2.0, 0.0, 0.0, 0.0]), atol=1e-6)


def test_flipped_it_goes_the_other_way_where_clients_disagree(federate):
    """The earlier paper's rate is −η there: the last coordinate moves by −1 instead of 1."""
    method = fedquilt.sign_agreement(fedquilt.fed_avg(**BASE), threshold=2, flip=True)
    step, _ = merged(federate(method), method, UPDATES)
    assert torch.allclose(step, torch.tensor([2.0, -2.0, 0.0, -1.0]), atol=1e-6)


@pytest.mark.parametrize("mask", ["step", "update"])
def test_momentum_is_masked_with_the_step_or_not(federate, mask):
    """v₁ = (2, −2, 0, 1) by the step's mask, (2, −2, 0, 0) by the update's. Then both clients send −1 in the last alone.

    mean₂ = (0, 0, 0, −1), signs (0, 0, 0, −2). The step's mask: v₂ = 0.5·v₁ + mean₂ = (1, −1, 0, −0.5), of which only the
    last is let through. The update's mask: v₂ = (1, −1, 0, −1), all let through, since momentum is not masked.
    """
    method = fedquilt.sign_agreement(fedquilt.fed_avg_m(**BASE, server_momentum=0.5), threshold=2, mask=mask)
    federation = federate(method)
    _, state = merged(federation, method, UPDATES)
    step, _ = merged(federation, method, [[0.0, 0.0, 0.0, -1.0]] * 2, state)
    expected = {"step": [0.0, 0.0, 0.0, -0.5], "update": [1.0, -1.0, 0.0, -1.0]}[mask]
    assert torch.allclose(step, torch.tensor(expected), atol=1e-6)


@pytest.mark.parametrize("server", [fedquilt.fed_adam, fedquilt.fed_dyn])
def test_the_order_of_wrapping_does_not_matter(server, blobs, unbalanced, smooth):
    base = fedquilt.fed_avg(fraction=0.5)
    both = [server(fedquilt.sign_agreement(base)), fedquilt.sign_agreement(server(base))]
    digests = {
        fedquilt.train(smooth, blobs, unbalanced, method, rounds=3, engine=fedquilt.inline()).digest for method in both
    }
    assert len(digests) == 1
    plain = fedquilt.train(smooth, blobs, unbalanced, server(base), rounds=3, engine=fedquilt.inline()).digest
    assert plain not in digests


def test_a_threshold_of_zero_is_the_wrapped_method():
    base = fedquilt.fed_avg_m()
    assert fedquilt.sign_agreement(base, threshold=0) is base


def test_a_silent_coordinate_stays_as_it_is_to_the_bit(federate):
    method = fedquilt.sign_agreement(fedquilt.fed_avg_m(**BASE), threshold=2)
    step, _ = merged(federate(method), method, UPDATES)
    assert step[2] == 0


def test_a_threshold_that_no_cohort_reaches_is_warned_of(blobs, unbalanced, smooth):
    method = fedquilt.sign_agreement(fedquilt.fed_avg(fraction=0.5), threshold=4)
    with pytest.warns(RuntimeWarning, match="threshold = 4 cannot be reached by the 3 clients of a round"):
        result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline())
    start = torch.cat([p.detach().flatten() for p in smooth.parameters()])
    assert torch.equal(result.state.vector, start)


def test_the_order_of_arrival_does_not_matter():
    deltas = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    method = fedquilt.sign_agreement(fedquilt.fed_avg(), threshold=3)

    def signs(order):
        gather = method.exchanges[0].gather(Cohort(40, 5.0, 5, 5))
        for slot in order:
            gather.add(ClientUpdate(slot, slot, deltas[slot], torch.zeros(0), torch.zeros(0), 1.0, 1.0, 1, 1))
        return gather.finish()["signs"]

    assert torch.equal(signs([0, 1, 2, 3, 4]), signs([4, 2, 0, 3, 1]))
    assert torch.equal(signs(range(5)), deltas.sign().sum(dim=0).int())
