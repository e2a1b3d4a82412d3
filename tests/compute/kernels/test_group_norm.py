"""The kernel of group normalisation against PyTorch's, with and without the activation that follows, and in runs."""

import numpy as np
import pytest
import torch
from beside_torch import both, last
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fedquilt
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.group_norm import CompiledGroupNorm, Passed
from fedquilt.compute.kernels.layers import kernels_of, with_kernels

pytestmark = pytest.mark.skipif(
    build.trouble("group_norm") is not None, reason=f"no kernels here: {build.trouble('group_norm')}"
)


def weights(count):
    return torch.linspace(-1, 2, count)


@settings(max_examples=40, deadline=None)
@given(
    images=st.integers(1, 3),
    groups=st.integers(1, 5),
    each=st.integers(1, 9),
    side=st.integers(2, 12),
    activation=st.sampled_from([None, nn.ReLU, nn.ReLU6]),
    mean=st.sampled_from([0.0, 30.0]),
    seed=st.integers(0, 5),
)
def test_outputs_and_gradients_are_those_of_torch(images, groups, each, side, activation, mean, seed):
    """Those of double precision, as near as PyTorch's own: also with a mean of many deviations, and any channels."""
    torch.manual_seed(seed)
    x = last(torch.randn(images, groups * each, side, side) + mean)
    model = nn.Sequential(nn.GroupNorm(groups, groups * each), *([] if activation is None else [activation()]))
    nn.init.normal_(model[0].weight, 2.0), nn.init.normal_(model[0].bias)
    if activation is not None:  # near a kink, the last bit decides
        z = model[0](x.contiguous())
        if min((z - kink).abs().min() for kink in (0, 6)) < 1e-4:
            return
    _, ours = both(model, x, weights)
    exact = both(model.double(), x.double(), weights)[0]
    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4 * float(other.abs().max() + 1))


def test_an_activation_is_computed_by_the_kernel_only_where_it_stands_alone():
    norm, shared = nn.GroupNorm(2, 4), nn.ReLU6()
    alone = with_kernels(nn.Sequential(norm, nn.ReLU6()))
    assert (type(alone[1]), alone[0].highest) == (Passed, 6.0)
    twice = with_kernels(nn.Sequential(norm, shared, nn.Conv2d(4, 4, 1), shared))
    assert (type(twice[1]), twice[0].highest) == (nn.ReLU6, None)
    watched = nn.Sequential(nn.GroupNorm(2, 4), nn.ReLU())
    watched[1].register_forward_hook(lambda *_: None)
    assert type(with_kernels(watched)[1]) is nn.ReLU
    assert kernels_of(nn.GroupNorm(2, 4, affine=False)) == ()


def test_other_inputs_are_torchs():
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.ReLU6())
    ours = with_kernels(model)
    assert type(ours[0]) is CompiledGroupNorm
    for x in (torch.randn(3, 4, 5, 5), torch.randn(3, 4), 9 * torch.randn(2, 4, 3), last(torch.empty(0, 4, 5, 5))):
        assert torch.equal(ours(x), model(x))
    with pytest.raises(ValueError, match="more than 1 value"):
        with_kernels(nn.GroupNorm(2, 2))(last(torch.randn(1, 2, 1, 1)))
    assert ours.double()(last(torch.randn(1, 4, 5, 5)).double()).dtype == torch.float64


def test_what_is_not_a_number_stays_none():
    x = last(torch.randn(2, 4, 5, 5))
    x[0, 0, 0, 0] = float("nan")
    plain, ours = both(nn.Sequential(nn.GroupNorm(2, 4), nn.ReLU6()), x, weights)
    assert torch.equal(plain[0].isnan(), ours[0].isnan())
    assert ours[1][0].isnan().any()
    assert not ours[1][1].isnan().any()


def test_a_compiled_run_is_the_reference_and_itself():
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU6(), nn.Conv2d(8, 12, 3, 2), nn.GroupNorm(3, 12)),
        *(nn.Flatten(), nn.Linear(12 * 9, 4)),
    )
    x = np.random.default_rng(0).normal(size=(24, 3, 8, 8)).astype("float32")
    data = fedquilt.arrays(x, np.arange(24) % 4, x, np.arange(24) % 4)
    who, method = fedquilt.Partition.of(np.array_split(np.arange(24), 3)), fedquilt.fed_avg(fraction=1.0, batch=4)
    plain, ours, worked = (
        fedquilt.train(module, data, who, method, 3, engine=engine, seed=1)
        for engine in (
            fedquilt.inline(),
            fedquilt.inline(compute="compiled"),
            fedquilt.processes(workers=2, compute="compiled"),
        )
    )
    assert worked.digest == ours.digest
    assert (plain.state.vector - ours.state.vector).abs().max() < 1e-5
