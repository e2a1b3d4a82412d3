"""Which layers have kernels, and models whose layers are computed by them."""

from __future__ import annotations

import copy

from torch import nn

from fedquilt.kernels.lstm import CompiledLSTM


def has_kernels(module: nn.Module) -> bool:
    """Say whether a model has recurrent layers, and there are kernels for all of them.

    A layer of one's own is computed by a kernel if its attribute `compiled_as` names the class that does it.

    >>> has_kernels(nn.LSTM(2, 3)), has_kernels(nn.LSTM(2, 3, bidirectional=True)), has_kernels(nn.Linear(2, 3))
    (True, False, False)
    """
    recurrent = [part for part in module.modules() if isinstance(part, nn.RNNBase) or _named(part) is not None]
    return bool(recurrent) and all(_kernel(part) is not None for part in recurrent)


def with_kernels(module: nn.Module) -> nn.Module:
    """Return a copy of a model whose layers are computed by kernels; its parameters have the same names.

    >>> with_kernels(nn.Sequential(nn.LSTM(2, 3)))
    Sequential(
      (0): CompiledLSTM(2, 3)
    )
    """
    module = copy.deepcopy(module)
    for part in module.modules():
        kernel = _kernel(part)
        if kernel is not None:
            part.__class__ = kernel
    return module


def _kernel(part: nn.Module) -> type[nn.Module] | None:
    if type(part) not in {nn.LSTM, CompiledLSTM}:
        return _named(part)
    assert isinstance(part, nn.LSTM)
    plain = not part.bidirectional and part.proj_size == 0 and (part.dropout == 0 or part.num_layers == 1)
    return CompiledLSTM if plain else None


def _named(part: nn.Module) -> type[nn.Module] | None:
    return getattr(type(part), "compiled_as", None)
