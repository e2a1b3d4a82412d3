"""ResNet-20 with Fixup: where it starts, and that it runs in every way that training does."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import nn

from fedquilt import models


def made(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return models.resnet20_fixup()


def blocks(model: nn.Module) -> list[nn.Module]:
    return list(model.get_submodule("blocks").children())


def moved(model: nn.Module) -> nn.Module:
    """Away from the start, where every branch and the classifier are zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(
                0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
    return model


def images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("seed", range(3))
def test_norm_of_the_start(seed: int) -> None:
    """Squared: 2/9 for each of 288 input channels of the blocks, a multiplier for each block, and 432/81 for the first."""
    norm = torch.linalg.vector_norm(nn.utils.parameters_to_vector(made(seed).parameters())).item()
    assert 8 < norm < 10
    assert norm == pytest.approx(sqrt(288 * 2 / 9 + 9 + 432 / 81), rel=0.02)


def test_start() -> None:
    model = made()
    assert len(blocks(model)) == 9
    for block in blocks(model):
        first, second = (block.get_parameter(f"{name}.weight") for name in ("first", "second"))
        # He: √(2 / fan-out), times 9^(−1/2). The fewest weights are 2,304, whose spread is then within 8% of it.
        assert first.std().item() == pytest.approx(sqrt(2 / (len(first) * 9)) / 3, rel=0.08)
        assert not second.any()
        assert block.get_parameter("multiplier").item() == 1
    for name, parameter in model.named_parameters():
        assert parameter.any() != ("bias" in name or "second" in name or "classifier" in name), name
    assert not model(images()).any()


def test_a_new_block_is_its_shortcut() -> None:
    """What comes in is not negative, so that the last activation does nothing."""
    x = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(1))
    same, halving = blocks(made())[0], blocks(made())[3]
    assert torch.equal(same(x), x)
    assert torch.equal(halving(x), torch.cat([x[:, :, ::2, ::2], torch.zeros(2, 16, 4, 4)], dim=1))


def test_the_images_get_smaller_and_the_channels_more() -> None:
    x, shapes = torch.zeros(1, 16, 32, 32), []
    for block in blocks(made()):
        x = block(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


def test_channels_last_and_functional_calls_give_the_same() -> None:
    model, x = moved(made()), images()
    with torch.no_grad():
        plain = model(x)
        called = torch.func.functional_call(model, dict(model.named_parameters()), (x,))
        last = model.to(memory_format=torch.channels_last)(x)  # type: ignore[call-overload]
    assert plain.std() > 0.01
    assert torch.equal(called, plain)
    torch.testing.assert_close(last, plain, rtol=1e-4, atol=1e-5)


def test_every_branch_matters_once_moved() -> None:
    model = moved(made())
    gradients = torch.autograd.grad(model(images()).square().sum(), list(model.parameters()))
    assert all(gradient.abs().max() > 0 for gradient in gradients)
