"""The kernel of cross-entropy over many classes against PyTorch's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import fedquilt
from fedquilt.compute.kernels import build, cross_entropy
from fedquilt.compute.kernels.cross_entropy import KERNEL, LEAST_CLASSES, LEAST_SCORES, mean_cross_entropy
from fedquilt.compute.kernels.layers import kernels_of
from fedquilt.data.data import IGNORED
from fedquilt.engines import inline

pytestmark = pytest.mark.skipif(build.trouble(KERNEL) is not None, reason=f"no kernels here: {build.trouble(KERNEL)}")

ROWS = LEAST_SCORES // LEAST_CLASSES


def with_gradient(function, scores, targets):
    scores = scores.clone().requires_grad_()
    value = function(scores, targets)
    return value.detach(), torch.autograd.grad(3 * value, scores)[0]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(ROWS, ROWS + 9),
    classes=st.integers(LEAST_CLASSES, LEAST_CLASSES + 40),
    spread=st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    offset=st.sampled_from([0.0, -100.0, 10_000.0]),
    ignored=st.integers(0, 3),
    seed=st.integers(0, 5),
)
def test_value_and_gradient_as_in_double_precision(rows, classes, spread, offset, ignored, seed):
    torch.manual_seed(seed)
    scores, targets = offset + spread * torch.randn(rows, classes), torch.randint(0, classes, (rows,))
    targets[1 : 1 + ignored] = IGNORED
    value, gradient = with_gradient(mean_cross_entropy, scores, targets)
    exact, slope = with_gradient(functional.cross_entropy, scores.double(), targets)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-5, atol=1e-8)
    assert not gradient[targets == IGNORED].any()


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_a_number_is_as_torchs(strange):
    torch.manual_seed(0)
    scores, targets = torch.randn(ROWS, LEAST_CLASSES), torch.arange(ROWS)
    scores[1, 100] = strange
    ours, theirs = (with_gradient(f, scores, targets) for f in (mean_cross_entropy, functional.cross_entropy))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, equal_nan=True)


def test_nothing_that_counts_is_not_a_number():
    assert mean_cross_entropy(torch.zeros(ROWS, LEAST_CLASSES), torch.full((ROWS,), IGNORED)).isnan()


def test_a_target_that_is_no_class_is_refused():
    targets = torch.arange(ROWS)
    targets[-1] = LEAST_CLASSES
    with pytest.raises(IndexError, match="a target is not one of the 1024 classes"):
        mean_cross_entropy(torch.zeros(ROWS, LEAST_CLASSES), targets)


@pytest.mark.parametrize("more", [-1, 1])
def test_targets_that_do_not_fit_are_refused_as_torch_does(more):
    with pytest.raises(ValueError, match="Expected input batch_size"):
        mean_cross_entropy(torch.zeros(ROWS, LEAST_CLASSES), torch.zeros(ROWS + more, dtype=torch.int64))


@pytest.mark.parametrize("shape", [(ROWS - 1, LEAST_CLASSES), (2 * ROWS, LEAST_CLASSES - 1)])
def test_few_classes_or_scores_are_torchs_to_the_bit(shape):
    scores, targets = torch.randn(shape), torch.arange(shape[0])
    assert torch.equal(mean_cross_entropy(scores, targets), functional.cross_entropy(scores, targets))


class Words(nn.Module):
    """Words embedded, read by an LSTM, and scored by weights of their own, or by those that embed them."""

    def __init__(self, tied):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(LEAST_CLASSES, 1024), nn.LSTM(1024, 1024 if tied else 8, batch_first=True)
        self.predict = None if tied else nn.Linear(8, LEAST_CLASSES)

    def forward(self, x):
        read = self.lstm(self.embed(x))[0]
        return functional.linear(read, self.embed.weight) if self.predict is None else self.predict(read)


def smoothed(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, -2), targets.long().flatten(), label_smoothing=0.1)


@pytest.mark.parametrize("tied", [False, True])
def test_runs_with_it_agree_with_eager_ones(tied, monkeypatch):
    """A model with many words, trained by plain descent, has the kernel; with momentum or another loss it has not."""
    torch.manual_seed(0)
    module, called = Words(tied), []
    monkeypatch.setattr(cross_entropy, "library", lambda name: called.append(name) or build.library(name))
    words = np.random.default_rng(0).integers(0, LEAST_CLASSES, size=(30, 14))
    data = fedquilt.arrays(words[:, :13], words[:, 1:], words[:4, :13], words[:4, 1:])
    clients = fedquilt.iid(np.zeros(30, dtype=np.int64), clients=3, seed=1)

    def trained(compute, momentum=0.0, mean=None):
        method = fedquilt.fed_avg(lr=0.3, fraction=1.0, batch=5, momentum=momentum)
        method = method if mean is None else replace(method, loss=replace(method.loss, mean=mean))
        result = fedquilt.train(module, data, clients, method, rounds=2, seed=1, engine=inline(compute=compute))
        return torch.cat([p.detach().flatten() for p in result.model.parameters()])

    assert KERNEL in kernels_of(module)
    plain = trained("eager")
    assert not called
    assert (plain - trained("compiled")).abs().max() < 1e-5
    assert len(called) == 2 * 2 * 3 * 2  # forward and back, rounds, clients, steps
    called.clear()
    trained("compiled", momentum=0.9)
    assert (trained("eager", mean=smoothed) - trained("compiled", mean=smoothed)).abs().max() < 1e-5
    assert not called
