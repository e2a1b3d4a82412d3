"""A module whose own tensors are the working memory of eager training."""

from __future__ import annotations

import torch
from torch import nn

from fedquilt.core.params import Layout, ModelState, Tensors


class Workbench:
    """A module to train in place, one client after the other.

    >>> module = nn.Linear(2, 1)
    >>> layout = Layout.of(module)
    >>> bench = Workbench(module, layout)
    >>> params, buffers = bench.load(layout.read(module))
    >>> sorted(params), buffers
    (['bias', 'weight'], {})
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        """Take over a module, whose values will be overwritten."""
        self.module = module
        self.layout = layout
        carried = {entry.name for entry in (*layout.buffers, *layout.counters)}
        # Buffers that a module does not save are not part of the model, but a forward pass may still change them.
        self._unsaved = {name: buffer.clone() for name, buffer in module.named_buffers() if name not in carried}

    def load(self, state: ModelState) -> tuple[Tensors, Tensors]:
        """Put a state's values into the module, and return its parameters and buffers by name."""
        params: Tensors = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        buffers: Tensors = dict(self.module.named_buffers())
        values = self.layout.parameters_of(state.vector) | self.layout.buffers_of(state) | self._unsaved
        with torch.no_grad():
            for name, tensor in (params | buffers).items():
                tensor.copy_(values[name])
        return params, buffers

    def read(self) -> ModelState:
        """Copy the module's values out."""
        return self.layout.read(self.module)
