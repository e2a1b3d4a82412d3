"""Refuses keys that no case takes, and grids over keys that some case does not take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.base.errors import SpecError, nearest
from fedquilt.experiment.design.axes import Axis
from fedquilt.experiment.design.blueprint import Blueprint
from fedquilt.experiment.design.keys import RUN_KEYS, flattened, takes
from fedquilt.experiment.tables import ARRAYS, GIVEN, REGISTRIES
from fedquilt.experiment.toml import Table


def refuse_unused_keys(blueprint: Blueprint) -> None:
    """Refuse keys that would have no effect anywhere, or not where the table says so."""
    cells = {cell: blueprint.plain(cell) for cell in blueprint.cells()}
    every = list(cells.values())
    for where, key in _homes(blueprint).items():
        if all(takes(tables, key) is False for tables in every):
            raise SpecError(f"{blueprint.source}: {where}: {_no_case(every, key)}")
    _require_tuned(blueprint, every)
    for axis in blueprint.axes:
        if axis.kind != "case":
            _require_everywhere(axis, cells)


def _homes(blueprint: Blueprint) -> dict[str, str]:
    """Return the keys that hold in all cases which take them, by where they are written."""
    homes = {}
    for key in flattened(blueprint.base, blueprint.source):
        table, _, name = key.partition(".")
        homes[f"[{table}] {name}"] = key
    homes |= {f"[scale.{blueprint.scale_name}] {key}": key for key in blueprint.scale}
    homes |= {f"--set {key}": key for key in blueprint.sets}
    homes |= {f'[repeat] "{key}"': key for key in blueprint.repeat}
    return homes | {f'[derive] "{key}"': key for key in blueprint.derive}


def _require_tuned(blueprint: Blueprint, every: Sequence[Table]) -> None:
    tuning = blueprint.tuning
    if tuning is None:
        return
    if tuning.by == "validation" and not tuning.folds and not all("validation" in tables["run"] for tables in every):
        raise SpecError(
            f'{blueprint.source}: [tune] by: "validation" needs examples to choose by: write [run] validation = 0.1, '
            "or [tune] folds = 5"
        )
    tuned = {key for cell in blueprint.cells() for key in blueprint.tuned(cell)}
    for key in tuning.keys:
        if key not in tuned:
            fixed = any(takes(tables, key) is not False for tables in every)
            why = "every case sets it by itself, so that nothing is tuned" if fixed else _no_case(every, key)
            raise SpecError(f'{blueprint.source}: [tune] "{key}": {why}')


def _require_everywhere(axis: Axis, cells: Mapping[tuple[str, ...], Table]) -> None:
    """Refuse a grid over a key that a case does not take: cells would differ in name only."""
    for key in axis.keys:
        if all(takes(tables, key) is False for tables in cells.values()):
            raise SpecError(f"{axis.where}: {_no_case(list(cells.values()), key)}")
    for cell, tables in cells.items():
        for key in axis.keys:
            if takes(tables, key) is False:
                raise SpecError(
                    f"{axis.where}: is not a key of the case {', '.join(cell)}: {_function(tables, key)} does not "
                    "take it; leave such cells out with [[when]] skip = true, or give the key in the cases that have it"
                )


def _function(tables: Mapping[str, Any], key: str) -> str:
    table, _, rest = key.partition(".")
    inner = tables.get(table)
    if isinstance(inner, list):
        number = rest.partition(".")[0]
        found = inner[int(number) - 1] if number in map(str, range(1, len(inner) + 1)) else {}
        return f"{table} {number}, {found['name']}," if "name" in found else f"there is no {table} {number}, which"
    return str(inner["name"]) if isinstance(inner, dict) and "name" in inner else f"[{table}]"


def _no_case(cells: Sequence[Mapping[str, Any]], key: str) -> str:
    table, _, name = key.partition(".")
    if table == "run":
        return f"[run] has no such key; {nearest(name, RUN_KEYS)}"
    known = (REGISTRIES | ARRAYS)[table]
    named = [str(inner.get("name")) for tables in cells if isinstance(inner := tables.get(table), dict)]
    taken = {each for function in named if function in known for each in known.parameters(function) or ()}
    return f"no case takes this key; {nearest(name, taken - GIVEN.get(table, frozenset()))}"
