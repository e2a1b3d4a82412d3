"""A module whose own tensors are the working memory of eager training."""

from __future__ import annotations

import copy
from collections.abc import Set
from typing import Any

import torch
from torch import nn
from torch.nn.utils.weight_norm import WeightNorm

from fedquilt.base.errors import FedquiltError, reason_of
from fedquilt.compute.device import CPU, Placement
from fedquilt.compute.form import Form
from fedquilt.compute.kernels.layers import kernels_of, with_kernels
from fedquilt.compute.layout import Layout, ModelState, Tensors


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a user's module, or say why there can be none.

    >>> layer = nn.Linear(2, 1)
    >>> copied(layer) is layer
    False
    """
    for name, part in module.named_modules():
        if any(isinstance(hook, WeightNorm) for hook in part._forward_pre_hooks.values()):
            raise FedquiltError(
                f"the model's layer {name or type(part).__name__} uses torch.nn.utils.weight_norm, which cannot be copied "
                "to clients; use torch.nn.utils.parametrizations.weight_norm, which computes the same"
            )
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise FedquiltError(f"the model cannot be copied to clients: {reason_of(error)}") from error


class Replica:
    """A module to train in place, one client after the other.

    >>> module = nn.Linear(2, 1)
    >>> layout = Layout.of(module)
    >>> replica = Replica(module, layout)
    >>> params, buffers = replica.load(layout.read(module))
    >>> sorted(params), buffers
    (['bias', 'weight'], {})
    """

    def __init__(self, module: nn.Module, layout: Layout, placement: Placement = CPU) -> None:
        """Take over a module, whose values will be overwritten."""
        self.module = module.to(placement.device)
        self.layout = layout
        self.placement = placement
        carried = {entry.name for entry in (*layout.buffers, *layout.counters)}
        # Buffers that a module does not save are not part of the model, but a forward pass may still change them.
        self._unsaved = {name: buffer.clone() for name, buffer in module.named_buffers() if name not in carried}
        self._channels_last: frozenset[str] = frozenset()
        self._form: Form | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the module is made of, which is another one's identities in another process."""
        return self.__dict__ | {"_form": None}

    def remember(self, again: bool = False) -> None:
        """Note what the module is made of, for `put_back`, unless it was noted before."""
        if self._form is None or again:
            self._form = Form(self.module)

    def put_back(self) -> list[str]:
        """Make the module again what it was made of when that was noted; return what could not be put back."""
        return [] if self._form is None else self._form.put_back()

    def placed(self, placement: Placement) -> Replica:
        """Return a replica with another placement, or this one if it has that placement already."""
        if placement == self.placement:
            return self
        return self._copied(copy.deepcopy(self.module), placement)

    def apart(self) -> Replica:
        """Return a replica with a copied module: processes that torch starts would share the tensors of the first."""
        return self._copied(copy.deepcopy(self.module), self.placement)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels for the model's layers."""
        return kernels_of(self.module, bool(self._channels_last))

    def with_kernels(self, channels_last: bool) -> Replica:
        """Return a replica with a copied module, whose layers are computed by kernels where there are some.

        With `channels_last`, images of one channel are laid out so too, if convolutions are.
        """
        return self._copied(with_kernels(self.module, channels_last and bool(self._channels_last)), self.placement)

    def _copied(self, module: nn.Module, placement: Placement) -> Replica:
        replica = Replica(module, self.layout, placement)
        replica._channels_last = self._channels_last
        return replica

    def put_channels_last(self, wanted: bool) -> None:
        """Lay the weights of 2-D convolutions out with channels last, or first again.

        The convolutions then run with channels last, which takes about half the time on a CPU. Values are the same, the
        last bits of results are not. A module that takes a `view` of a convolution's output cannot run that way.
        """
        names = {
            f"{prefix}.weight".removeprefix(".")
            for prefix, part in self.module.named_modules()
            if isinstance(part, nn.Conv2d) and isinstance(part._parameters.get("weight"), nn.Parameter)
        }
        self._channels_last = frozenset(names) if wanted else frozenset()
        _lay_out(self.module, names, torch.channels_last if wanted else torch.contiguous_format)

    def tensors(self, state: ModelState) -> Tensors:
        """Return everything that a forward pass may read or change, by name."""
        unsaved = {name: buffer.clone() for name, buffer in self._unsaved.items()}
        tensors = self.layout.parameters_of(state.vector) | self.layout.buffers_of(state) | unsaved
        for name in self._channels_last & tensors.keys():
            tensors[name] = tensors[name].contiguous(memory_format=torch.channels_last)
        return self.placement.put(tensors)

    def load(self, state: ModelState) -> tuple[Tensors, Tensors]:
        """Put a state's values into the module, and return its parameters and buffers by name."""
        return self._fill(self.module, state)

    def read(self) -> ModelState:
        """Copy the module's values out."""
        return self.layout.read(self.module)

    def finished(self, state: ModelState) -> nn.Module:
        """Return a copy of the module with a state's values, in evaluation mode."""
        module = copy.deepcopy(self.module).cpu()
        self._fill(module, state)
        _lay_out(module, self._channels_last, torch.contiguous_format)
        return module.eval()

    def frozen(self) -> Tensors:
        """Return the parameters that are not trained, by name.

        >>> module = nn.Linear(2, 1)
        >>> _ = module.bias.requires_grad_(False)
        >>> list(Replica(module, Layout.of(module)).frozen())
        ['bias']
        """
        return {name: p.detach().contiguous() for name, p in self.module.named_parameters() if not p.requires_grad}

    def put_frozen(self, values: Tensors) -> None:
        """Put values into the parameters that are not trained."""
        with torch.no_grad():
            for name, value in values.items():
                self.module.get_parameter(name).copy_(value)

    def _fill(self, module: nn.Module, state: ModelState) -> tuple[Tensors, Tensors]:
        params: Tensors = {name: p for name, p in module.named_parameters() if p.requires_grad}
        buffers: Tensors = dict(module.named_buffers())
        values = self.tensors(state)
        with torch.no_grad():
            for name, tensor in (params | buffers).items():
                tensor.copy_(values[name])
        return params, buffers


def _lay_out(module: nn.Module, names: Set[str], memory_format: torch.memory_format) -> None:
    for name, parameter in module.named_parameters():
        if name in names:
            parameter.data = parameter.data.contiguous(memory_format=memory_format)
