"""Makes a model only if it fits into memory: its tensors are counted before each of them is made."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedquilt.data.memory import require_memory

COPIES = 4
"""A run holds a model so many times at least: the server's, a worker's, an update and the sum of updates."""


class WithinMemory(TorchDispatchMode):
    """Refuses tensors whose sizes are named (`torch.empty`, `zeros`, `randn`, …) once they are more than memory can hold.

    >>> from torch import nn
    >>> with WithinMemory():
    ...     nn.Linear(10**8, 10**8)
    Traceback (most recent call last):
    fedquilt.errors.DataError: the model, of which a run has 4 copies, would take 160,000,000 GB of memory; ...
    """

    def __init__(self) -> None:
        """Begin to count."""
        super().__init__()
        self._bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count what an operation is about to make."""
        kwargs = kwargs or {}
        size = args[0] if args else None
        if isinstance(size, list | tuple) and all(isinstance(length, int) for length in size):
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            self._bytes += math.prod(size) * dtype.itemsize
            require_memory(f"the model, of which a run has {COPIES} copies,", COPIES * self._bytes)
        return func(*args, **kwargs)
