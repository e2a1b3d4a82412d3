"""Which layers have kernels, and models whose layers are computed by them."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from fedquilt.compute.kernels import cross_entropy, linear
from fedquilt.compute.kernels.convolution import CompiledConv2d, convolved
from fedquilt.compute.kernels.descending import OwnSteps, descending
from fedquilt.compute.kernels.group_norm import HIGHEST, CompiledGroupNorm, Passed
from fedquilt.compute.kernels.lstm import CompiledLSTM
from fedquilt.compute.kernels.max_pool import CompiledMaxPool2d, pair
from fedquilt.compute.kernels.stack import changed


def kernels_of(module: nn.Module, channels_last: bool = True) -> tuple[str, ...]:
    """Return the names of the kernels for a model's layers: none if it has a recurrent layer without one.

    Convolutions have one only with `channels_last`.

    Your own layer is computed by a kernel if its attribute `compiled_as` names the class that does it.

    >>> kernels_of(nn.LSTM(2, 3)), kernels_of(nn.LSTM(2, 3, bidirectional=True)), kernels_of(nn.Linear(2, 3))
    (('lstm',), (), ())
    """
    if any(isinstance(part, nn.RNNBase) and _kernel(part) is None for part in module.modules()):
        return ()
    found = {kernel for part in module.modules() if (kernel := _kernel(part)) is not None}
    names = {kernel.kernel for kernel in found if channels_last or kernel is not CompiledConv2d}
    parts = list(module.modules())
    if names and any(map(descending, parts)) and any(map(_has_many_outputs, parts)):
        names |= {linear.KERNEL, cross_entropy.KERNEL}
    return tuple(sorted(names))


def _has_many_outputs(part: nn.Module) -> bool:
    """Say whether a layer has so many outputs that these, or a loss of them, may have kernels; an embedding may be tied."""
    outputs = {nn.Linear: "out_features", nn.Embedding: "num_embeddings"}
    return any(isinstance(part, kind) and getattr(part, name) >= linear.LEAST_OUTPUTS for kind, name in outputs.items())


def with_kernels(module: nn.Module, channels_last: bool = False) -> nn.Module:
    """Return a copy of a model whose layers are computed by kernels; its parameters have the same names.

    Kernels for images are for channels last. With `channels_last`, convolutions are computed by theirs, and those of one
    channel that it does not take see to it that channels come last. The kernel of group normalisation computes the
    activation that follows in an `nn.Sequential`, too. Large linear and embedding layers can take their own steps
    (`descending`).

    >>> with_kernels(nn.Sequential(nn.LSTM(2, 3)))
    Sequential(
      (0): CompiledLSTM(2, 3)
    )
    """
    module, steps = copy.deepcopy(module), OwnSteps()
    for part in module.modules():
        kernel = _kernel(part)
        if kernel is not None and (channels_last or kernel is not CompiledConv2d):
            part.__class__ = kernel
        elif channels_last and type(part) is nn.Conv2d and part.in_channels == 1:
            part.__class__ = OneChannelConv2d
        elif (stepping := descending(part)) is not None and not changed(part):
            part.__class__ = stepping
            part.steps = steps  # type: ignore[assignment]
    for normalisation, activation in _followed(module):
        normalisation.highest = HIGHEST[type(activation)]
        activation.__class__ = Passed
    return module


def _followed(module: nn.Module) -> list[tuple[CompiledGroupNorm, nn.Module]]:
    """Return normalisations by the kernel and the activations that they compute, too: those that stand nowhere else."""
    often = Counter(id(part) for _, part in module.named_modules(remove_duplicate=False))
    sequences = [list(part) for part in module.modules() if type(part) is nn.Sequential]
    return [
        (one, two)
        for parts in sequences
        for one, two in pairwise(parts)
        if type(one) is CompiledGroupNorm and type(two) in HIGHEST
        if often[id(one)] == often[id(two)] == 1 and not changed(one) and not changed(two)
    ]


def _kernel(part: nn.Module) -> Any:
    """Return the class that computes a layer by a kernel; its attribute `kernel` is the name of the file."""
    if type(part) in {nn.LSTM, CompiledLSTM}:
        assert isinstance(part, nn.LSTM)
        plain = not part.bidirectional and part.proj_size == 0 and (part.dropout == 0 or part.num_layers == 1)
        return CompiledLSTM if plain else None
    if type(part) in {nn.MaxPool2d, CompiledMaxPool2d}:
        assert isinstance(part, nn.MaxPool2d)
        plain = pair(part.padding) == (0, 0) and pair(part.dilation) == (1, 1) and not part.return_indices
        return CompiledMaxPool2d if plain else None
    if type(part) in {nn.GroupNorm, CompiledGroupNorm}:
        assert isinstance(part, nn.GroupNorm)
        return CompiledGroupNorm if part.affine else None
    if type(part) in {nn.Conv2d, CompiledConv2d}:
        assert isinstance(part, nn.Conv2d)
        return CompiledConv2d if convolved(part) else None
    return vars(type(part)).get("compiled_as")  # a subclass may compute something else


class OneChannelConv2d(nn.Conv2d):
    """`nn.Conv2d` of one channel that tells PyTorch to put channels last.

    PyTorch goes by the strides of what it is given, and those of one channel do not say where channels are to come. It then
    puts them first, which makes pooling slow.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return the convolution, channels last in memory."""
        if input.dim() == 4 and input.is_contiguous():
            height, width = input.shape[2:]
            input = input.as_strided(input.shape, (height * width, 1, width, 1))  # noqa: A001
        return super().forward(input)
