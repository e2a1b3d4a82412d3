"""Model values in memory that this process and its workers share."""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

from fedquilt.core.params import Layout, ModelState


def shared_models(layout: Layout, forked: bool, count: int) -> list[ModelState]:
    """Allocate the values of some models in shared memory.

    Forked workers inherit an anonymous mapping, which has no name that a crash could leave behind. Spawned ones are
    handed torch's own shared tensors.
    """
    sizes = (layout.size, torch.float32), (layout.buffer_size, torch.float32), (layout.counter_size, torch.int64)
    parts = [_shared(count * size, dtype, forked).view(count, size) for size, dtype in sizes]
    return [ModelState(*(part[place] for part in parts)) for place in range(count)]


def write(target: ModelState, source: ModelState) -> None:
    """Copy values into shared memory."""
    target.vector.copy_(source.vector)
    if len(target.buffers):
        target.buffers.copy_(source.buffers)
    if len(target.counters):
        target.counters.copy_(source.counters)


def _shared(size: int, dtype: torch.dtype, forked: bool) -> Tensor:
    if size == 0 or not forked:
        tensor = torch.zeros(size, dtype=dtype)
        tensor.share_memory_()  # type: ignore[no-untyped-call]
        return tensor
    return torch.frombuffer(mmap.mmap(-1, size * dtype.itemsize), dtype=dtype)
