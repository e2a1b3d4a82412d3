"""Model values in memory that this process and its workers share."""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

from fedquilt.base.memory import require_memory
from fedquilt.compute.layout import Layout, ModelState


def shared_models(layout: Layout, forked: bool, count: int) -> ModelState:
    """Allocate the values of some models in shared memory, a row each.

    Forked workers inherit an anonymous mapping, which has no name that a crash could leave behind. Spawned ones are
    handed torch's own shared tensors.
    """
    sizes = (layout.size, torch.float32), (layout.buffer_size, torch.float32), (layout.counter_size, torch.int64)
    require_memory(
        f"{count:,} models that workers share (see engine.block and engine.workers)",
        count * sum(size * dtype.itemsize for size, dtype in sizes),
    )
    return ModelState(*(shared(count * size, dtype, forked).view(count, size) for size, dtype in sizes))


def rows_of(models: ModelState, first: int, count: int) -> ModelState:
    """Return some of several models, in the same memory."""
    return ModelState(*(part[first : first + count] for part in (models.vector, models.buffers, models.counters)))


def write(target: ModelState, source: ModelState) -> None:
    """Copy values into shared memory."""
    target.vector.copy_(source.vector)
    if target.buffers.numel():
        target.buffers.copy_(source.buffers)
    if target.counters.numel():
        target.counters.copy_(source.counters)


def shared(size: int, dtype: torch.dtype, forked: bool) -> Tensor:
    """Allocate numbers in shared memory, all 0."""
    if size == 0 or not forked:
        tensor = torch.zeros(size, dtype=dtype)
        tensor.share_memory_()  # type: ignore[no-untyped-call]
        return tensor
    return torch.frombuffer(mmap.mmap(-1, size * dtype.itemsize), dtype=dtype)
