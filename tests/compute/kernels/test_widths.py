"""Kernels that compute with floats and are compiled at installation give the same bits however they are compiled."""

from __future__ import annotations

import ctypes
import platform
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedquilt.compute.kernels import (
    build,
    compiler,
    convolution,
    cross_entropy,
    group_norm,
    layers,
    linear,
    lstm,
    max_pool,
    rectified,
    stack,
)
from fedquilt.models import local_response_norm
from fedquilt.models.local_response_norm import LocalResponseNorm
from fedquilt.models.lstm import PeepholeLSTM
from fedquilt.models.resnet20_fixup import FixupBlock

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"} or not any(map(shutil.which, ("c++", "g++", "clang++"))),
    reason="needs a C++ compiler for x86-64",
)

UNFUSED = ("-mno-fma", "-mno-avx512f")
BUILDS = {
    "4 floats": (("-O3", "-march=x86-64"), "sse2"),
    "8 floats": (("-O3", "-mavx2", *UNFUSED), "avx2"),
    "8 floats, fused": (("-O3", "-mavx2", "-mfma", "-mno-avx512f"), "fma"),
    "8 floats, fused, less optimised": (("-O1", "-mavx2", "-mfma", "-mno-avx512f"), "fma"),
    "8 floats, as installed": (compiler.flags_for(compiler.AVX2), "fma"),
    "16 floats, as installed": (compiler.flags_for(compiler.AVX512), "avx512vl"),
    "16 floats, fused": (("-O3", "-march=skylake-avx512"), "avx512vl"),
}
ALIKE = [
    ("4 floats", "8 floats"),
    ("8 floats, fused", "8 floats, fused, less optimised"),
    ("8 floats, fused", "8 floats, as installed"),
    ("8 floats, fused", "16 floats, as installed"),
    ("8 floats, fused", "16 floats, fused"),
]


def processor_has(flag: str) -> bool:
    about = Path("/proc/cpuinfo")
    return about.exists() and f" {flag}" in about.read_text()


def built(kernel: str, folder: Path) -> dict[str, Path]:
    """Compile a kernel in every way that this processor can run."""
    kept = [flag for flag in compiler.FLAGS if not flag.startswith("-O")]
    found: dict[str, Path] = {}
    for name, (flags, needed) in BUILDS.items():
        if processor_has(needed):
            found[name] = folder / f"{len(found)}.so"
            command = [*compiler.cpp_compiler(), *kept, *flags]
            compiler.compile_libraries([compiler.Library(command, compiler.sources_of(kernel), found[name])])
    return found


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return built("stack", tmp_path_factory.mktemp("stacks"))


class MeanCrossEntropy(nn.Module):
    """The mean cross-entropy of the scores that it is given."""

    def forward(self, scores: Tensor) -> Tensor:
        return cross_entropy.mean_cross_entropy(scores, torch.arange(len(scores)))


OF_LAYERS: dict[str, tuple[ModuleType, Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (convolution, lambda: nn.Conv2d(32, 48, 5, padding=1), (7, 32, 11, 9)),
    "convolution of 3": (convolution, lambda: nn.Conv2d(16, 32, 3), (3, 16, 8, 8)),
    "convolution of colours": (convolution, lambda: nn.Conv2d(3, 32, 3, padding=1), (7, 3, 11, 9)),
    "cross_entropy": (cross_entropy, MeanCrossEntropy, (67, 1030)),
    "group_norm": (group_norm, lambda: nn.GroupNorm(3, 21), (3, 21, 9, 9)),
    "group_norm of few": (group_norm, lambda: nn.GroupNorm(2, 8), (2, 8, 3, 5)),
    "group_norm and ReLU": (group_norm, lambda: nn.Sequential(nn.GroupNorm(3, 21), nn.ReLU()), (3, 21, 9, 9)),
    "lstm": (lstm, lambda: nn.LSTM(7, 21, 2), (11, 13, 7)),
    "lstm with peepholes": (lstm, lambda: PeepholeLSTM(7, 21), (11, 13, 7)),
    "max_pool": (max_pool, lambda: nn.MaxPool2d(3, 2), (3, 21, 9, 9)),
    "response_norm": (local_response_norm, lambda: LocalResponseNorm(9, 0.1), (3, 32, 3, 3)),
    "rectified": (rectified, lambda: FixupBlock(16, 16, 3), (3, 16, 9, 9)),
}
"""By the name of a kernel, and more: where it is called, a layer, and the shape of its input."""


@pytest.fixture(scope="module")
def layers_made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    names = {name.split(maxsplit=1)[0] for name in OF_LAYERS}
    return {name: built(name, tmp_path_factory.mktemp(name)) for name in names}


def two(made: dict[str, Path], one: str, other: str) -> list[ctypes.CDLL]:
    if one not in made or other not in made:
        pytest.skip(f"this processor cannot run both: {one}; {other}")
    return [ctypes.CDLL(str(made[one])), ctypes.CDLL(str(made[other]))]


def trained(widths: list[int], batch: int, cosine: bool, penalties: stack.LastLayerPenalties) -> Tensor:
    """Train a model for two steps, with everything that a step can have."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    module = nn.Sequential(*layers[:-1])
    found = stack.stack_of(module)
    assert found is not None
    if cosine:
        first = found.layers[0]
        bent = stack.StackLayer(first.weight, first.bias, first.inputs, first.outputs, "cosine", 0.3)
        found = stack.Stack((bent, *found.layers[1:]), found.flattens)
    vector = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    starts = np.cumsum([0, *(p.numel() for p in module.parameters())]).tolist()
    offsets = dict(zip(dict(module.named_parameters()), starts, strict=False))
    x, y = torch.randn(2 * batch, widths[0]), torch.randint(0, widths[-1], (2 * batch,))
    steps = np.array([batch, 2 * batch])
    examples = stack.Examples(x, y, torch.rand(2 * batch), np.arange(2 * batch), steps, np.array([2]))
    vectors, descent = vector[None].clone(), stack.Descent(0.1, 0.9, 0.01, 0.1)
    arguments = (found, offsets, vectors, torch.zeros_like(vectors), vector + 0.1, 0.01 * torch.ones_like(vectors))
    losses = stack.train_stack(*arguments, examples, descent, True, penalties)
    return torch.cat([vectors[0], torch.tensor(losses)])


@pytest.mark.parametrize("batch", [1, 5, 7, 10, 13])
@pytest.mark.parametrize("widths", [[20, 10], [13, 7, 3], [50, 100, 5], [30, 40, 40, 10], [9, 33, 21]])
@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_the_same_bits(
    stacks: dict[str, Path], one: str, other: str, widths: list[int], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registers of 4, 8 or 16 floats, and other optimisations, give the same model to the last bit."""
    penalties = stack.LastLayerPenalties(0.01, 0.01, 0.1, False, torch.tensor([30.0]), torch.zeros(1, widths[-2]))
    results = []
    for compiled in two(stacks, one, other):
        monkeypatch.setattr(stack, "library", lambda _, compiled=compiled: compiled)
        cosine = len(widths) > 2
        results.append(
            (trained(widths, batch, cosine, penalties), trained(widths, batch, False, stack.LastLayerPenalties()))
        )
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert all(torch.isfinite(each).all() for each in results[0])


@pytest.mark.parametrize("name", OF_LAYERS)
@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_the_same_bits_of_layers(
    layers_made: dict[str, dict[str, Path]], one: str, other: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, layer, shape = OF_LAYERS[name]
    kernel = name.split(maxsplit=1)[0]
    torch.manual_seed(0)
    module = layers.with_kernels(layer(), channels_last=True)
    memory = torch.channels_last if len(shape) == 4 else torch.contiguous_format
    x = torch.randn(shape).contiguous(memory_format=memory).requires_grad_(shape[1] > convolution.FEW)
    needed = [x] * x.requires_grad + list(module.parameters())
    results, as_usual = [], build.library
    for compiled in two(layers_made[kernel], one, other):
        monkeypatch.setattr(
            caller, "library", lambda asked, compiled=compiled: compiled if asked == kernel else as_usual(asked)
        )
        y = module(x)
        y = y[0] if isinstance(y, tuple) else y
        results.append([y, *torch.autograd.grad(y, needed, y)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_the_same_bits_of_many_outputs(
    tmp_path_factory: pytest.TempPathFactory, one: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the last rows fill one register, or several, depending on how wide they are."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(60, 71), torch.randn(1030, 71), torch.randn(1030)
    results = []
    for compiled in two(built(linear.KERNEL, tmp_path_factory.mktemp("linear")), one, other):
        monkeypatch.setattr(linear, "library", lambda _, compiled=compiled: compiled)
        results.append(torch.cat([linear.linear(x[:rows], weight, bias) for rows in (35, 37, 48, 60)]))
    assert torch.equal(*results)
