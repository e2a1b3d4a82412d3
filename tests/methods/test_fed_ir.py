"""FedIR (Hsu 2020, §5.2): what the weighted loss estimates, and its limits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedquilt
from fedquilt.algorithm.loss import Loss
from fedquilt.base.errors import SpecError
from fedquilt.methods.fed_ir import by_class_ratio
from fedquilt.partition import Partition

INF = float("inf")
BASE = {"lr": 0.3, "fraction": 1.0, "batch": INF}


def one_step(module, data, held, method):
    """The gradient that one full-batch step of one client took."""
    result = fedquilt.train(module, data, held, method, rounds=1, engine=fedquilt.inline())
    start = torch.cat([p.detach().flatten() for p in module.parameters()])
    return (start - result.state.vector) / 0.3


def target_gradient(module, data, rows, target):
    """∇ Σ_y p(y)·(mean loss of the client's examples of class y), over the classes that it has."""
    x, y = data.train.x[rows], data.train.y[rows]
    losses = functional.cross_entropy(module(x), y, reduction="none")
    present = [label for label in range(3) if (y == label).any()]
    mass = sum(target[label] for label in present)
    loss = sum(target[label] / mass * losses[y == label].mean() for label in present)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


@pytest.fixture
def skewed(blobs):
    """One client with 10, 30 and 60 examples of the three classes, and one that lacks the last class."""
    y = blobs.train.y.numpy()
    by_class = [np.flatnonzero(y == label) for label in range(3)]
    return (
        Partition.of([np.concatenate([by_class[0][:10], by_class[1][:30], by_class[2][:60]])]),
        Partition.of([np.concatenate([by_class[0][:10], by_class[1][:30]])]),
    )


@pytest.mark.parametrize("normalise", [True, False])
def test_the_loss_is_that_on_the_target_where_the_client_has_all_classes(blobs, skewed, smooth, normalise):
    """E_q[ℓ·p/q] = E_p[ℓ] (equation 2); on all of the data the weights' mean is Σ p = 1, so both forms agree."""
    target = [0.5, 0.3, 0.2]
    method = fedquilt.fed_ir(fedquilt.fed_avg(**BASE), target=target, normalise=normalise)
    expected = target_gradient(smooth, blobs, skewed[0].client(0), target)
    assert torch.allclose(one_step(smooth, blobs, skewed[0], method), expected, atol=1e-5)


def test_with_missing_classes_it_is_the_target_restricted_to_the_others(blobs, skewed, smooth):
    target = [0.5, 0.3, 0.2]
    expected = target_gradient(smooth, blobs, skewed[1].client(0), target)
    normalised = fedquilt.fed_ir(fedquilt.fed_avg(**BASE), target=target)
    plain = fedquilt.fed_ir(fedquilt.fed_avg(**BASE), target=target, normalise=False)
    assert torch.allclose(one_step(smooth, blobs, skewed[1], normalised), expected, atol=1e-5)
    assert torch.allclose(one_step(smooth, blobs, skewed[1], plain), 0.8 * expected, atol=1e-5)


@pytest.mark.parametrize(
    ("normalise", "batch", "expected"),
    [
        (True, INF, (4 / 9, 7 / 18, 1 / 6)),
        (False, INF, (1 / 3, 1 / 4, 1 / 12)),
        (True, 1, (2, 1, 1 / 3)),
        (False, 1, (4 / 3, 5 / 6, 1 / 6)),
    ],
)
def test_a_round_on_linear_losses_by_hand(linears, normalise, batch, expected):
    """An example of class y is e_y, with the loss −w_y: a batch moves w_y by the rate times the weight of y in it.

    p = (1/2, 1/4, 1/4). Client 1 holds classes 0, 0, 0, 1: q = (3/4, 1/4, 0), weights (2/3, 1, –). Client 2 holds 1, 2:
    q = (0, 1/2, 1/2), weights (–, 1/2, 1/2). They count 4/6 and 2/6.

    Full batches, equation 1: Σ w_i/n = p on the classes that a client has: (1/2, 1/4, 0) and (0, 1/4, 1/4); the mean is
    (1/3, 1/4, 1/12). Equation 4 divides by their mass, 3/4 and 1/2: (2/3, 1/3, 0) and (0, 1/2, 1/2); (4/9, 7/18, 1/6).
    Batches of one, equation 1: every example moves w by its weight: (2, 1, 0) and (0, 1/2, 1/2); (4/3, 5/6, 1/6).
    Equation 4: a weight cancels against itself, as in fed_avg: (3, 1, 0) and (0, 1, 1); (2, 1, 1/3).
    Gradients are constant, so that R rounds with rate η move w by ηR of this.
    """
    labels = (0, 0, 0, 1, 1, 2)
    clients = linears(np.eye(3)[list(labels)], sizes=(4, 2), y=labels)
    method = partial(fedquilt.fed_ir, target=[2, 1, 1], normalise=normalise)
    result = clients.train(method, rounds=3, lr=0.5, batch=batch)
    assert result.state.vector.tolist() == pytest.approx([1.5 * value for value in expected], abs=1e-5)


def batch_losses(loss, size, count=4000):
    """The losses of many batches, drawn independently from a client with 90 examples of class 0 and 10 of class 1.

    An example's loss is its class; the target is (1/2, 1/2).
    """
    labels = torch.tensor([0] * 90 + [1] * 10)
    weights = by_class_ratio(labels, 2, {"fed_ir": {"target": torch.tensor([0.5, 0.5])}})
    picks = torch.randint(100, (count, size), generator=torch.Generator().manual_seed(size))
    return torch.stack([loss(y.float(), y, weights[y]) for y in labels[picks]]).double()


def mean_and_error(values):
    """The mean, and its standard error."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def loss_of(normalise):
    base = replace(fedquilt.fed_avg(), loss=Loss(each=lambda outputs, targets: (outputs, None)))
    return fedquilt.fed_ir(base, target=[0.5, 0.5], normalise=normalise).loss


@pytest.mark.parametrize("size", [1, 2, 16])
def test_without_normalising_the_loss_of_a_batch_is_unbiased(size):
    """Equation 2: w = (5/9, 5), and E_q[w·ℓ] = 0.9·0 + 0.1·5 = 1/2, the target's loss, whatever the size of the batch.

    Within four standard errors: a right implementation fails for one seed in 16,000. Equation 4 in its
    place is off by 83, 59 and 19 of its own.
    """
    mean, error = mean_and_error(batch_losses(loss_of(normalise=False), size))
    assert abs(mean - 0.5) < 4 * error
    assert error < 0.03


def test_normalised_the_loss_of_a_batch_has_a_bias_that_shrinks_as_batches_grow():
    """Equation 4 with k of B examples of class 1: 5k / (5k + 5/9·(B − k)) = 9k / (8k + B), k binomial with 1/10.

    B = 2: 0.18·9/10 + 0.01·1 = 0.172, where the target's loss is 0.5: a bias of −0.328. B = 16: one of −0.074. Asserted: at
    B = 2 it is not 0, by more than six standard errors; at B = 16 it is less than half of that, even if both are off by
    four standard errors; and both are what the binomial says, within four.
    """
    bias, error = {}, {}
    for size in (2, 16):
        mean, error[size] = mean_and_error(batch_losses(loss_of(normalise=True), size))
        bias[size] = mean - 0.5
        exact = sum(math.comb(size, k) * 0.1**k * 0.9 ** (size - k) * 9 * k / (8 * k + size) for k in range(size + 1))
        assert abs(mean - exact) < 4 * error[size]
    assert abs(bias[2]) > 6 * error[2]
    assert abs(bias[16]) + 4 * error[16] < (abs(bias[2]) - 4 * error[2]) / 2


def test_where_every_client_is_like_the_population_it_is_fed_avg(blobs, smooth):
    alike = Partition.by_sizes(np.arange(240), np.full(8, 30))  # labels go 0, 1, 2, 0, 1, 2, …
    plain, weighted = (
        fedquilt.train(smooth, blobs, alike, method, rounds=5, engine=fedquilt.inline()).state.vector
        for method in (fedquilt.fed_avg(fraction=0.5), fedquilt.fed_ir(fedquilt.fed_avg(fraction=0.5)))
    )
    assert (plain - weighted).abs().max() < 1e-6


def test_classes_of_target_probability_zero_have_no_say_and_no_nan(blobs, unbalanced, smooth):
    """Sorted clients: some hold nothing but class 2, and take no step at all."""
    method = fedquilt.fed_ir(fedquilt.fed_avg(fraction=1.0, batch=10), target=[1.0, 1.0, 0.0])
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=fedquilt.inline())
    assert all(record["dropped"] == [] for record in result.history)
    only = Partition.of([np.flatnonzero(blobs.train.y.numpy() == 2)])
    alone = fedquilt.train(smooth, blobs, only, method, rounds=1, engine=fedquilt.inline())
    start = torch.cat([p.detach().flatten() for p in smooth.parameters()])
    assert torch.equal(alone.state.vector, start)


def test_the_target_is_counted_in_the_bytes_sent_down(blobs, unbalanced, smooth):
    records = [
        fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline()).history.records[0]
        for method in (fedquilt.fed_avg(fraction=1.0), fedquilt.fed_ir(fedquilt.fed_avg(fraction=1.0)))
    ]
    assert records[1]["bytes_down"] - records[0]["bytes_down"] == 6 * 3 * 4
    assert records[1]["bytes_up"] == records[0]["bytes_up"]


def test_wrong_targets_are_refused(blobs, unbalanced, smooth):
    with pytest.raises(SpecError, match="at least one class"):
        fedquilt.fed_ir(fedquilt.fed_avg(), target=[0.0, 0.0])
    with pytest.raises(SpecError, match="has 2 classes, where the data set blobs has 3"):
        fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_ir(fedquilt.fed_avg(), target=[1, 1]), rounds=1)


def test_the_second_papers_whole_method_composes(blobs, unbalanced, smooth):
    method = fedquilt.fed_ir(fedquilt.fed_vc(fedquilt.fed_avg_m(lr=0.05, fraction=0.5, batch=8), size=32))
    first, second = (
        fedquilt.train(smooth, blobs, unbalanced, method, rounds=5, engine=engine)
        for engine in (fedquilt.inline(), fedquilt.processes(workers=2))
    )
    assert first.digest == second.digest
    assert replace(method, name="x").applied == method.applied
