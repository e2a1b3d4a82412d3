"""Nested tables of tensors as bytes, in safetensors' format: reading them runs no code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

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
    """Put a flat table back into its nested form, in the order in which `apart` walked it.

    safetensors returns tensors in an order of its own, which may be another one every time.

    >>> import torch
    >>> list(nested(dict(reversed(apart({"b": torch.zeros(1), "a": torch.zeros(1)}).items()))))
    ['b', 'a']
    """
    state: State = {}
    paths = {name: _numbered_path(name) for name in tensors}
    for name in sorted(paths, key=lambda name: paths[name][0]):
        _, *path, key = paths[name]
        inner = state
        for part in path:
            inner = inner.setdefault(part, {})  # type: ignore[assignment]
        inner[key] = tensors[name]
    return state


def _numbered_path(name: str) -> list[Any]:
    path = json.loads(name)
    return path if isinstance(path[0], int) else [0, *path]  # checkpoints of earlier versions have no numbers


def apart(state: State) -> Tensors:
    """Return a nested table's tensors by number and path, none sharing memory with another, as safetensors wants them.

    >>> import torch
    >>> list(apart({"1": {"w": torch.zeros(1)}, "0": torch.zeros(1)}))
    ['[0, "1", "w"]', '[1, "0"]']
    """
    seen: set[int] = set()
    tensors = {}
    for number, (name, tensor) in enumerate(flat(state)):
        place = tensor.untyped_storage().data_ptr()
        tensors[f"[{number}, {name[1:]}"] = tensor.clone() if place in seen else tensor.contiguous()
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
    """Read what `to_bytes` wrote, in the order of writing."""
    return nested(read_tensors(data))
