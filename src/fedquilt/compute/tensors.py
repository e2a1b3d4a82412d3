"""Nested tables of tensors as bytes, in safetensors' format: reading them runs no code.

A tensor's name there is its number and its path, as JSON. safetensors knows no empty tables: one is written as a tensor
without elements, whose path ends in `{}`, which no key can be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor, empty

from fedquilt.compute.layout import State, Tensors

_EMPTY: dict[str, Any] = {}
"""The end of the path to a table that holds nothing."""


def flat(state: State, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Tensor]]:
    """Walk a nested table; a tensor's name is its path.

    >>> import torch
    >>> [name for name, _ in flat({"1": {"w": torch.zeros(1)}})]
    ['["1", "w"]']
    """
    return ((json.dumps(keys), value) for keys, value in _leaves(state, path) if isinstance(value, Tensor))


def _leaves(state: State, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Tensor | State]]:
    """Walk a nested table; yield its tensors and the tables in it that are empty, with their paths."""
    for key, value in state.items():
        if isinstance(value, Tensor) or not value:
            yield (*path, key), value
        else:
            yield from _leaves(value, (*path, key))


def nested(tensors: Tensors) -> State:
    """Put a flat table back into its nested form, in the order in which `apart` walked it.

    safetensors returns tensors in any order, which may differ from call to call.

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
        if key != _EMPTY:
            inner[key] = tensors[name]
    return state


def _numbered_path(name: str) -> list[Any]:
    path = json.loads(name)
    return path if isinstance(path[0], int) else [0, *path]  # checkpoints of earlier versions have no numbers


def apart(state: State) -> Tensors:
    """Return a nested table's tensors by number and path, none sharing memory with another, as safetensors wants them.

    >>> import torch
    >>> list(apart({"1": {"w": torch.zeros(1)}, "0": torch.zeros(1), "2": {}}))
    ['[0, "1", "w"]', '[1, "0"]', '[2, "2", {}]']
    """
    seen: set[int] = set()
    tensors = {}
    for number, (path, value) in enumerate(_leaves(state, ())):
        if not isinstance(value, Tensor):
            tensors[json.dumps([number, *path, _EMPTY])] = empty(0)
            continue
        storage = value.untyped_storage().data_ptr()
        tensors[json.dumps([number, *path])] = value.clone() if storage in seen else value.contiguous()
        seen.add(storage)
    return tensors


def to_bytes(state: State) -> bytes:
    """Write a nested table of tensors.

    >>> import torch
    >>> from_bytes(to_bytes({"0": {"w": torch.ones(2)}, "1": {}}))
    {'0': {'w': tensor([1., 1.])}, '1': {}}
    """
    return write_tensors(apart(state))


def from_bytes(data: bytes) -> State:
    """Read what `to_bytes` wrote, in the order of writing."""
    return nested(read_tensors(data))
