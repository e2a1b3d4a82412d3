"""A site as bytes and arrays: tensors become NumPy arrays, which a cluster's workers read where they lie, without a copy.

Who unpacks it runs code from it, as with everything that Ray carries: a cluster is one trust domain (docs/security.md).
"""

from __future__ import annotations

import importlib
import io
import pickle
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.base.errors import installed

SMALLEST = 2**16
"""Bytes from which on a tensor is kept as an array of its own."""

Array = npt.NDArray[Any]


class Packed(NamedTuple):
    """An object's bytes, and the arrays that they refer to."""

    content: bytes
    arrays: Sequence[Array]

    @property
    def nbytes(self) -> int:
        """The size of it all."""
        return len(self.content) + sum(array.nbytes for array in self.arrays)


def packed(value: object) -> Packed:
    """Take an object apart. Code of the user's own goes along, since other machines may not have its files.

    >>> found = unpacked(packed({"x": torch.ones(2**15), "y": torch.zeros(2)}))
    >>> found["x"].sum(), found["y"]
    (tensor(32768.), tensor([0., 0.]))
    """
    cloudpickle: Any = importlib.import_module("ray.cloudpickle")
    arrays: list[Array] = []

    class Packer(cloudpickle.CloudPickler):  # type: ignore[misc]
        """Writes large tensors as arrays."""

        def reducer_override(self, thing: object) -> Any:
            if type(thing) is Tensor and _fits(thing):
                return _tensor, (thing.detach().numpy(),)
            return super().reducer_override(thing)

    def keep(buffer: pickle.PickleBuffer) -> None:
        arrays.append(np.frombuffer(buffer.raw(), dtype=np.uint8))

    own = [module for module in list(sys.modules.values()) if _is_own(module)]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        content = io.BytesIO()
        Packer(content, protocol=5, buffer_callback=keep).dump(value)
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    return Packed(content.getvalue(), arrays)


def unpacked(packing: Packed) -> Any:
    """Put an object together again; its large tensors lie in the arrays, and must not be written."""
    return pickle.loads(packing.content, buffers=packing.arrays)  # noqa: S301 - as all that Ray carries


def read_only(array: Array) -> Tensor:
    """Return a tensor in an array's memory, which may be read-only: nobody writes into it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not writable.*", UserWarning)
        return torch.from_numpy(array)


_tensor = read_only


def _fits(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and tensor.nbytes >= SMALLEST and tensor.is_contiguous() and tensor.dtype != torch.bfloat16


def _is_own(module: object) -> bool:
    """Say whether a module is a file of the user's own, which an import path in a spec names."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or file is None or module.__name__ == "__main__":
        return False
    return not installed(file) and module.__name__.partition(".")[0] not in {"fedquilt", "ray"}
