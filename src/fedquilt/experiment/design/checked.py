"""Checks a table of an experiment file against the parameters of a function, or the fields of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedquilt.base.arguments import ArgumentError, check
from fedquilt.base.errors import SpecError
from fedquilt.base.text import joined, short
from fedquilt.experiment.toml import Table


def checked_table(function: Callable[..., object], table: object, where: str) -> Table:
    """Return the table with defaults filled in, or raise a SpecError that says `where` something is wrong.

    >>> def rule(level: float = 0.95) -> None: ...
    >>> checked_table(rule, {}, "[significance]"), checked_table(rule, {"level": 0.9}, "[significance]")
    ({'level': 0.95}, {'level': 0.9})
    """
    if not isinstance(table, Mapping):
        raise SpecError(f"{where}: must be a table, got {short(table)}")
    try:
        found: dict[str, Any] = check(function, dict(table))
    except ArgumentError as error:
        raise SpecError(joined([f"{where} {each.key}: {each.message}" for each in error.problems])) from None
    return found
