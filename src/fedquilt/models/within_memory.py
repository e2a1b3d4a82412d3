"""Makes a model only if it fits into memory: its tensors are counted before each of them is made."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fedquilt.base.memory import require_memory

COPIES = 4
"""A run holds a model so many times at least: the server's, a worker's, an update and the sum of updates."""

FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn}
"""What layers make their parameters with."""


class WithinMemory(TorchFunctionMode):
    """Refuses new tensors once they are more than memory can hold.

    >>> from torch import nn
    >>> with WithinMemory():
    ...     nn.Linear(10**8, 10**8)
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: the model, of which a run has 4 copies, would take 160,000,000 GB of memory; ...
    """

    def __init__(self) -> None:
        """Begin to count."""
        super().__init__()
        self._bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count what a function is about to make."""
        kwargs = kwargs or {}
        if func in FACTORIES:
            size = args[0] if args and isinstance(args[0], list | tuple) else kwargs.get("size") or args
            lengths = list(takewhile(lambda length: isinstance(length, int), size))
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            self._bytes += math.prod(lengths) * dtype.itemsize
            require_memory(f"the model, of which a run has {COPIES} copies,", COPIES * self._bytes)
        return func(*args, **kwargs)
