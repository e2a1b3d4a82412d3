"""Nested tables of tensors as bytes, in safetensors' format: reading them runs no code."""

from __future__ import annotations

import json
from collections.abc import Iterator

from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from fedquilt.core.params import Tensors
from fedquilt.core.transform import State


def flat(state: State, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Tensor]]:
    """Walk a nested table; a tensor's name is its path.

    >>> import torch
    >>> [name for name, _ in flat({"1": {"w": torch.zeros(1)}})]
    ['["1", "w"]']
    """
    for key, value in state.items():
        if isinstance(value, Tensor):
            yield json.dumps([*path, key]), value
        else:
            yield from flat(value, (*path, key))


def nested(tensors: Tensors) -> State:
    """Put a flat table back into its nested form."""
    state: State = {}
    for name, tensor in tensors.items():
        *path, key = json.loads(name)
        inner = state
        for part in path:
            inner = inner.setdefault(part, {})  # type: ignore[assignment]
        inner[key] = tensor
    return state


def apart(state: State) -> Tensors:
    """Return a nested table's tensors by path, none sharing memory with another, as safetensors wants them."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in flat(state):
        place = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if place in seen else tensor.contiguous()
        seen.add(place)
    return tensors


def to_bytes(state: State) -> bytes:
    """Write a nested table of tensors.

    >>> import torch
    >>> from_bytes(to_bytes({"0": {"w": torch.ones(2)}}))
    {'0': {'w': tensor([1., 1.])}}
    """
    return write_tensors(apart(state))


def from_bytes(data: bytes) -> State:
    """Read what `to_bytes` wrote."""
    return nested(read_tensors(data))
