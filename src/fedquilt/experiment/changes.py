"""Changes of a spec before it is checked: `--set method.lr=0.05` and `--unset method.lr`."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterable
from typing import Any

from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import visible
from fedquilt.experiment.tables import ARRAYS, REGISTRIES
from fedquilt.experiment.toml import Table, parse


def change(tables: Table, sets: Iterable[str], unsets: Iterable[str] = ()) -> Table:
    """Take keys such as `method.lr` out of a spec, then set others from texts such as `method.lr=0.05`.

    Whoever names another function in a table loses the keys that only the one before takes, and is warned of it. A value
    that is not TOML is taken as text.

    >>> change({"method": {"lr": 0.1, "batch": 5}}, ["method.lr=0.05", "data.name=mnist"], ["method.batch"])
    {'method': {'lr': 0.05}, 'data': {'name': 'mnist'}}
    """
    for key in unsets:
        _take_out(tables, key.strip())
    assignments = [assignment(text) for text in sets]
    for key, value in names_first(assignments):
        for gone, old in put(tables, key, value).items():
            table = key.removesuffix(".name")
            warnings.warn(
                f"{table}.{gone} is left out: {old} has this key, and {value} does not", UserWarning, stacklevel=2
            )
    return tables


def names_first(assignments: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Sort assignments so that a function is named before its keys are set, which may be new ones."""
    return sorted(assignments, key=lambda pair: not pair[0].endswith(".name"))


def assignment(text: str) -> tuple[str, Any]:
    """Read `key=value`; a value that is not TOML is text.

    >>> assignment("method.lr=0.05"), assignment("data.name=mnist")
    (('method.lr', 0.05), ('data.name', 'mnist'))
    """
    key, separator, written = text.partition("=")
    table, dot, name = key.strip().partition(".")
    if not (separator and dot and table and name):
        raise SpecError(f"--set {visible(text, 80)}: write table.key=value, such as --set method.lr=0.05")
    try:
        return key.strip(), parse(f"value = {written.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), written.strip()


def put(tables: Table, key: str, value: object, where: str = "--set") -> dict[str, str]:
    """Set a key such as `method.lr`, `method.lr.initial` or `wrap.1.mu` of a spec; `where` it is written, for messages.

    Where it names another function, keys that only the one before takes are dropped, and returned with its name.
    """
    tables.setdefault(key.partition(".")[0], {})
    inner, name = _table_and_key(tables, key, where)
    before, inner[name] = inner.get(name), value
    table = key.partition(".")[0]
    known = (REGISTRIES | ARRAYS).get(table)
    if known is None or name != "name" or not (isinstance(before, str) and isinstance(value, str)):
        return {}
    if before not in known or value not in known:  # of the user's own, what they take is not known yet
        return {}
    old, new = known.parameters(before) or (), known.parameters(value)
    gone = [each for each in inner if each != "name" and each in old and new is not None and each not in new]
    for each in gone:
        del inner[each]
    return dict.fromkeys(gone, before)


def _take_out(tables: Table, key: str) -> None:
    inner, name = (tables, key) if "." not in key else _table_and_key(tables, key, "--unset")
    if name not in inner:
        raise SpecError(f"--unset {visible(key, 80)}: the spec has no such key; {nearest(name, map(str, inner))}")
    del inner[name]


def _table_and_key(tables: Table, key: str, option: str) -> tuple[Table, str]:
    """Find the table that a key stands in, and what it is called there."""
    table, _, name = key.partition(".")
    inner, where = tables.get(table), f"{option} {visible(key, 80)}"
    if table in ARRAYS:
        number, _, name = name.partition(".")
        if not (isinstance(inner, list) and number in map(str, range(1, len(inner) + 1)) and name):
            count = len(inner) if isinstance(inner, list) else 0
            raise SpecError(f"{where}: write {table}.NUMBER.key; the spec has {count} [[{table}]] tables, from 1")
        inner = inner[int(number) - 1]
    if not isinstance(inner, dict):
        raise SpecError(f"{where}: [{visible(table, 80)}] is not a table")
    outer, dot, part = name.partition(".")
    if dot and isinstance(inner.get(outer), dict):  # a value that changes over rounds: method.lr.initial
        return inner[outer], part
    return inner, name
