"""The kernel of cross-entropy over many classes against PyTorch's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import fedquilt
from fedquilt.compute.kernels import build, cross_entropy
from fedquilt.compute.kernels.cross_entropy import KERNEL, mean_cross_entropy
from fedquilt.compute.kernels.linear import MANY
from fedquilt.data.data import IGNORED
from fedquilt.engines import inline

pytestmark = pytest.mark.skipif(build.trouble(KERNEL) is not None, reason=f"no kernels here: {build.trouble(KERNEL)}")


def with_gradient(function, scores, targets):
    scores = scores.clone().requires_grad_()
    value = function(scores, targets)
    return value.detach(), torch.autograd.grad(3 * value, scores)[0]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 9),
    classes=st.integers(MANY, MANY + 40),
    spread=st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    ignored=st.integers(0, 3),
    seed=st.integers(0, 5),
)
def test_value_and_gradient_as_in_double_precision(rows, classes, spread, ignored, seed):
    torch.manual_seed(seed)
    scores, targets = spread * torch.randn(rows, classes), torch.randint(0, classes, (rows,))
    targets[1 : 1 + ignored] = IGNORED
    value, gradient = with_gradient(mean_cross_entropy, scores, targets)
    exact, slope = with_gradient(functional.cross_entropy, scores.double(), targets)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-4, atol=2e-6)
    assert not gradient[targets == IGNORED].any()


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_a_number_is_as_torchs(strange):
    scores, targets = torch.randn(3, MANY), torch.tensor([5, 6, 7])
    scores[1, 100] = strange
    ours, theirs = (with_gradient(f, scores, targets) for f in (mean_cross_entropy, functional.cross_entropy))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, equal_nan=True)


def test_nothing_that_counts_is_not_a_number():
    targets = torch.full((2,), IGNORED)
    assert mean_cross_entropy(torch.zeros(2, MANY), targets).isnan()


def test_a_target_that_is_no_class_is_refused():
    with pytest.raises(IndexError, match="a target is not one of the 1024 classes"):
        mean_cross_entropy(torch.zeros(2, MANY), torch.tensor([0, MANY]))


def test_few_classes_are_torchs_to_the_bit():
    scores, targets = torch.randn(5, MANY - 1), torch.arange(5)
    assert torch.equal(mean_cross_entropy(scores, targets), functional.cross_entropy(scores, targets))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(MANY, 4), nn.LSTM(4, 1024, batch_first=True)
        self.predict = nn.Linear(1024, MANY)

    def forward(self, x):
        return self.predict(self.lstm(self.embed(x))[0])


def test_runs_with_it_agree_with_eager_ones(monkeypatch):
    """A model with many words, trained by plain descent, has the kernel; with momentum it has not."""
    torch.manual_seed(0)
    module, called = Words(), []
    monkeypatch.setattr(cross_entropy, "library", lambda name: called.append(name) or build.library(name))
    words = np.random.default_rng(0).integers(0, MANY, size=(12, 6))
    data = fedquilt.arrays(words[:, :5], words[:, 1:], words[:4, :5], words[:4, 1:])
    clients = fedquilt.iid(np.zeros(12, dtype=np.int64), clients=3, seed=1)

    def trained(momentum, compute):
        method = fedquilt.fed_avg(lr=0.3, fraction=1.0, batch=2, momentum=momentum)
        result = fedquilt.train(module, data, clients, method, rounds=2, seed=1, engine=inline(compute=compute))
        return torch.cat([p.detach().flatten() for p in result.model.parameters()])

    plain = trained(0.0, "eager")
    assert not called
    assert (plain - trained(0.0, "compiled")).abs().max() < 1e-5
    assert len(called) == 2 * 2 * 3 * 2  # forward and back, rounds, clients, steps
    called.clear()
    trained(0.9, "compiled")
    assert not called
