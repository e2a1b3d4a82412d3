"""A model as flat vectors with a layout.

Broadcast, averaging, server momentum, checkpoints and digests are plain vector algebra on these. Buffers (the running
statistics of normalisation layers) travel apart from the parameters, floating-point and whole-number ones apart from each
other, so that no server optimiser touches them. Tied parameters appear once, frozen ones not at all: they stay in the
module, and are not transmitted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fedquilt.base.errors import FedquiltError

Tensors = dict[str, Tensor]

State: TypeAlias = "dict[str, Tensor | State]"
"""A nested table of tensors: what an optimiser, a client or the server carries from step to step or round to round."""


@dataclass(frozen=True)
class TensorSpan:
    """Where one tensor lies in a flat vector."""

    name: str
    shape: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, eq=False)
class ModelState:
    """The values of a model: parameters, floating-point buffers and whole-number buffers, each one flat vector."""

    vector: Tensor
    buffers: Tensor
    counters: Tensor


@dataclass(frozen=True)
class Layout:
    """What stands where in a ModelState.

    >>> layout = Layout.of(nn.BatchNorm1d(3))
    >>> layout.size, [entry.name for entry in layout.buffers], [entry.name for entry in layout.counters]
    (6, ['running_mean', 'running_var'], ['num_batches_tracked'])
    """

    parameters: tuple[TensorSpan, ...]
    buffers: tuple[TensorSpan, ...]
    counters: tuple[TensorSpan, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Read the layout off a module."""
        trained: Tensors = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not trained:
            raise FedquiltError("the model has no parameters to train (all are frozen, or there are none)")
        odd = [f"{name} is {p.dtype}" for name, p in trained.items() if p.dtype != torch.float32]
        if odd:
            raise FedquiltError(f"parameters must be float32 (use module.float()): {', '.join(odd)}")
        kept = _persistent_buffers(module)
        complex_ = [name for name, buffer in kept.items() if buffer.is_complex()]
        if complex_:
            raise FedquiltError(f"buffers of complex numbers cannot be carried: {', '.join(complex_)}")
        floating = {name: b for name, b in kept.items() if b.is_floating_point()}
        whole = {name: b for name, b in kept.items() if not b.is_floating_point()}
        return cls(_entries(trained), _entries(floating), _entries(whole))

    @property
    def size(self) -> int:
        """The number of trained parameters."""
        return _total(self.parameters)

    @property
    def buffer_size(self) -> int:
        """The number of elements in floating-point buffers."""
        return _total(self.buffers)

    @property
    def counter_size(self) -> int:
        """The number of elements in whole-number buffers."""
        return _total(self.counters)

    @property
    def nbytes(self) -> int:
        """The bytes that one transmission of the model takes."""
        return 4 * (self.size + self.buffer_size) + 8 * self.counter_size

    def read(self, module: nn.Module) -> ModelState:
        """Copy a module's values into flat vectors, on the CPU."""
        tensors: Tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        return ModelState(
            _joined((tensors[e.name].detach() for e in self.parameters), torch.float32),
            _joined((tensors[e.name] for e in self.buffers), torch.float32),
            _joined((tensors[e.name] for e in self.counters), torch.int64),
        )

    def parameters_of(self, vector: Tensor) -> Tensors:
        """View a parameter vector as named tensors."""
        return {e.name: vector[e.offset : e.offset + e.size].view(e.shape) for e in self.parameters}

    def buffers_of(self, state: ModelState) -> Tensors:
        """Copy a state's buffers into named tensors of their own types."""
        floating = {e.name: state.buffers[e.offset : e.offset + e.size].view(e.shape).to(e.dtype) for e in self.buffers}
        whole = {e.name: state.counters[e.offset : e.offset + e.size].view(e.shape).to(e.dtype) for e in self.counters}
        return {name: tensor.clone() for name, tensor in (floating | whole).items()}

    def digest(self, state: ModelState) -> str:
        """Return the SHA-256 of a state: names, shapes and bytes.

        >>> layout = Layout.of(nn.Linear(2, 1))
        >>> zero = ModelState(torch.zeros(3), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
        >>> layout.digest(zero)[:12]
        '46f019327c96'
        """
        sha = hashlib.sha256()
        for entry in (*self.parameters, *self.buffers, *self.counters):
            sha.update(f"{entry.name}:{entry.shape};".encode())
        for tensor in (state.vector, state.buffers, state.counters):
            sha.update(tensor.contiguous().numpy().tobytes())
        return sha.hexdigest()


def _persistent_buffers(module: nn.Module) -> Tensors:
    persistent = set(module.state_dict(keep_vars=True))
    return {name: buffer for name, buffer in module.named_buffers() if name in persistent}


def _entries(tensors: Tensors) -> tuple[TensorSpan, ...]:
    entries, offset = [], 0
    for name, tensor in tensors.items():
        entries.append(TensorSpan(name, tuple(tensor.shape), offset, tensor.dtype))
        offset += tensor.numel()
    return tuple(entries)


def _total(entries: tuple[TensorSpan, ...]) -> int:
    return entries[-1].offset + entries[-1].size if entries else 0


def _joined(tensors: Iterable[Tensor], dtype: torch.dtype) -> Tensor:
    flat = [tensor.reshape(-1).to(dtype) for tensor in tensors]
    return torch.cat(flat).cpu() if flat else torch.zeros(0, dtype=dtype)
