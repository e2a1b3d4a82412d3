"""Penalties: terms that a method adds to a client's loss, over the features and the classifier.

A model is read as f(x) = Wᵀφ(x): it names the linear layer W by the attribute `classifier_layer`, and φ(x) is what that
layer is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.hooks import RemovableHandle

from fedquilt.base.errors import FedquiltError
from fedquilt.base.types import Indices
from fedquilt.compute.layout import ModelState, Tensors
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, Split

TAKEN = 1000
"""Examples taken at a time. Fixed: a matrix product's last bits may depend on its number of rows."""


@torch.no_grad()
def features_of(replica: Replica, model: ModelState, layer: str, data: Data, split: Split, rows: Indices) -> Tensor:
    """Return the features of some rows of a split, one row each, in evaluation mode."""
    found = []
    tensors = replica.tensors(model)
    with watched(replica.module.eval(), layer) as features:
        for part in torch.split(torch.from_numpy(rows), data.at_once or TAKEN):
            functional_call(replica.module, tensors, (replica.placement.put(data.inputs(split, part)),))
            assert features.last is not None
            found.append(replica.placement.fetch(features.last.flatten(0, -2)))
    return torch.cat(found)


@dataclass(frozen=True, eq=False)
class Seen:
    """What a penalty sees of a step: the batch's features, the classifier's weight, and what `begin` gave.

    `mask` is 0 for rows of the features that are padding (None: there is none).
    """

    features: Tensor
    classifier: Tensor
    given: Mapping[str, Tensors]
    mask: Tensor | None = None

    @property
    def examples(self) -> Tensor | int:
        """The number of rows that are not padding."""
        return len(self.features) if self.mask is None else self.mask.sum()


@dataclass(frozen=True)
class Penalty:
    """A term of the loss, named after its method; `layer` names the classifier where the model does not."""

    name: str
    value: Callable[[Seen], Tensor]
    layer: str | None = None


def classifier_layer(module: nn.Module, name: str | None = None) -> str:
    """Return the name of a model's classifier: the one given, or the one that the model names.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> classifier_layer(net, "2")
    '2'
    >>> classifier_layer(net)
    Traceback (most recent call last):
    fedquilt.base.errors.FedquiltError: the model does not say which layer is its classifier: set its attribute
    `classifier_layer`, or the wrapper's `layer`, to one of: 0, 2
    """
    linear = [key for key, part in module.named_modules() if isinstance(part, nn.Linear)]
    wanted = name if name is not None else getattr(module, "classifier_layer", None)
    if isinstance(wanted, str) and wanted in linear:
        return wanted
    say = "does not say which layer is its classifier" if wanted is None else f"has no linear layer {wanted!r}"
    known = ", ".join(linear) or "a linear layer (it has none)"
    raise FedquiltError(
        f"the model {say}: set its attribute `classifier_layer`, or the wrapper's `layer`, to one of: {known}"
    )


class Features:
    """Holds what the classifier was last given."""

    def __init__(self, layer: str) -> None:
        self.layer = layer
        self.last: Tensor | None = None
        self.handle: RemovableHandle | None = None

    def end(self) -> None:
        """Watch no longer."""
        if self.handle is not None:
            self.handle.remove()

    def seen(self, params: Tensors, given: Mapping[str, Tensors], mask: Tensor | None = None) -> Seen:
        """Return what a penalty sees, after a forward pass."""
        assert self.last is not None, "the classifier was not called"
        # Forgotten at once: what is seen in a transformed or compiled step must not outlive it.
        features, self.last = self.last.flatten(0, -2).float(), None  # under autocast, it may be of less precision
        if mask is not None:  # every position of a padded sequence is padding
            mask = mask.repeat_interleave(features.shape[0] // mask.shape[0])
        return Seen(features, params[f"{self.layer}.weight"], given, mask)

    def _watch(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.last = inputs[0]


def watch(module: nn.Module, layer: str) -> Features:
    """Watch a model's classifier until `end` is called."""
    features = Features(layer)
    features.handle = module.get_submodule(layer).register_forward_pre_hook(features._watch)
    return features


@contextmanager
def watched(module: nn.Module, layer: str) -> Iterator[Features]:
    """Watch a model's classifier for as long as the context lasts."""
    features = watch(module, layer)
    try:
        yield features
    finally:
        features.end()
