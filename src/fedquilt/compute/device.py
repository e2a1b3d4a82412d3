"""Where models are computed, and how exactly.

Everything that travels (models, updates, client state, extra uploads) and every sum over clients stays on the CPU in full
precision; only local training and evaluation happen on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedquilt.base.errors import SpecError
from fedquilt.compute.kernels.tiles import avoid_missing_tiles

Device = Literal["cpu", "cuda", "mps"]
Precision = Literal["float32", "bf16"]

T = TypeVar("T")

avoid_missing_tiles()  # as this is imported: oneDNN reads its variable when it computes for the first time


@dataclass(frozen=True)
class Placement:
    """A device of torch's, and the precision of a model's forward and backward pass there.

    With "bf16" the model runs under torch's autocast: matrix products and convolutions are computed in bfloat16, while
    parameters, losses, gradients and optimisers stay in float32.

    >>> Placement().put({"a": torch.ones(2)})
    {'a': tensor([1., 1.])}
    """

    device: Device = "cpu"
    precision: Precision = "float32"

    def put(self, tree: T) -> T:
        """Move the tensors of a tree to the device; on the CPU it is the tree itself."""
        if self.device == "cpu":
            return tree
        return tree_map(lambda leaf: leaf.to(self.device) if isinstance(leaf, Tensor) else leaf, tree)  # type: ignore[no-any-return]

    def fetch(self, tree: T) -> T:
        """Move the tensors of a tree back to the CPU."""
        if self.device == "cpu":
            return tree
        return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, Tensor) else leaf, tree)  # type: ignore[no-any-return]

    @property
    def autocast(self) -> str | None:
        """The device for torch's autocast, where it is used."""
        return self.device if self.precision == "bf16" else None


CPU = Placement()


def require(placement: Placement) -> None:
    """Refuse a device that is not here.

    >>> require(Placement("cpu"))
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(placement.device, True):
        raise SpecError(f'device = "{placement.device}": torch {torch.__version__} finds none here; use device = "cpu"')
