"""What a module is made of, apart from values: what one client changes of it must not reach the next client.

Its parts, their attributes and hooks, and which parameters are trained. All are compared by identity, which takes a few
microseconds a part. Values are another matter: they are loaded for every client.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import attrgetter, is_
from typing import Any

from torch import Tensor, nn

CONTAINERS = (dict, list, set)
"""Attributes whose own entries are looked at: tables of parameters, of hooks, and a user's own."""

MANY = 1000
"""Entries of a container beyond which they are not looked at, such as a vocabulary's: it would take too long."""


class Form:
    """A module as it was when this was made.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    >>> form = Form(net)
    >>> net[1] = nn.Identity()
    >>> _ = net[0].weight.requires_grad_(False)
    >>> form.put_back()
    []
    >>> net[1], net[0].weight.requires_grad
    (Dropout(p=0.5, inplace=False), True)
    """

    def __init__(self, module: nn.Module) -> None:
        """Look at a module."""
        parts = list(module.modules())
        self._classes = [(part, type(part)) for part in parts]
        tables: list[Any] = [part.__dict__ for part in parts]
        inner = [value for part in parts for value in part.__dict__.values() if isinstance(value, CONTAINERS)]
        tables += [value for value in inner if len(value) <= MANY]
        self._containers = [(table, _copied(table)) for table in tables]
        # Most containers are empty, and some loops in C are enough for the rest.
        self._empty = [table for table in tables if not table]
        self._full = [table for table in tables if isinstance(table, dict) and table]
        self._others = [table for table in tables if not isinstance(table, dict) and table]
        self._lengths, self._entries = self._lengths_now(), list(self._entries_now())
        self._parameters = list(module.parameters())
        self._data = [parameter.data for parameter in self._parameters]
        self._settings, self._addresses = self._settings_now(), self._addresses_now()

    def put_back(self) -> list[str]:
        """Make the module what it was; return what of it could not be put back."""
        same = not any(self._empty) and self._lengths_now() == self._lengths
        if not (same and all(map(is_, self._entries_now(), self._entries))):
            for table, copy in self._containers:
                _refill(table, copy)
        for part, kind in self._classes:
            if type(part) is not kind:
                part.__class__ = kind
        if self._settings_now() == self._settings and self._addresses_now() == self._addresses:
            return []
        for parameter, data, (trained, _, hooks, *_) in zip(self._parameters, self._data, self._settings, strict=True):
            parameter.requires_grad_(trained)
            parameter.data, parameter.grad, parameter._backward_hooks = data, None, hooks
        return [] if self._addresses_now() == self._addresses else ["the memory of the model's parameters"]

    def _lengths_now(self) -> list[int]:
        return [*map(len, self._full), *map(len, self._others)]

    def _entries_now(self) -> Iterator[Any]:
        return chain.from_iterable((*map(dict.values, self._full), *self._others))

    def _settings_now(self) -> list[tuple[Any, ...]]:
        return [*map(_SETTINGS, self._parameters)]

    def _addresses_now(self) -> list[Any]:
        return [*map(Tensor.data_ptr, self._parameters), *map(Tensor.stride, self._parameters)]


_SETTINGS = attrgetter("requires_grad", "grad", "_backward_hooks", "shape")


def _copied(table: Any) -> Any:
    return next(kind(table) for kind in CONTAINERS if isinstance(table, kind))


def _refill(table: Any, copy: Any) -> None:
    table.clear()
    if isinstance(table, list):
        table.extend(copy)
    else:
        table.update(copy)
