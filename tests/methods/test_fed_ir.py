"""FedIR (Hsu 2020, §5.2): what the weighted loss estimates, and its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedquilt
from fedquilt.errors import SpecError
from fedquilt.partition import Partition
from fedquilt.parts.importance import by_class_ratio

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


def test_the_normalised_loss_is_biased_less_with_larger_batches(blobs, skewed, smooth):
    """Over 400 random batches of a client, the mean gradient of equation 4 nears the target's as B grows from 2 to 32."""
    target = torch.tensor([0.5, 0.3, 0.2])
    rows = torch.from_numpy(skewed[0].client(0))
    x, y = blobs.train.x[rows], blobs.train.y[rows]
    weights = by_class_ratio(y, 3, {"target": target})[y]
    exact = target_gradient(smooth, blobs, rows, target.tolist())
    loss, rng, apart = fedquilt.fed_avg().loss, torch.Generator().manual_seed(0), {}
    for size in (2, 32):
        total = torch.zeros_like(exact)
        for _ in range(400):
            pick = torch.randint(len(rows), (size,), generator=rng)
            value = loss(smooth(x[pick]), y[pick], weights[pick])
            total += torch.cat([g.flatten() for g in torch.autograd.grad(value, list(smooth.parameters()))])
        apart[size] = float(torch.linalg.vector_norm(total / 400 - exact))
    assert apart[32] < 0.6 * apart[2]


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
    assert replace(method, name="x").claims == method.claims
