"""Scales: the same experiment at another size, such as what two cores finish in minutes.

    [scale.small]
    run.rounds = 20
    repeat."run.seed" = [1, 2]
    keep = { method = ["FedAvg", "FedProx"] }

A key of the spec, and a list to tune over, holds in every case, whatever the case says of it. Tables of the experiment
(`grid`, `zip`, `tune`, `repeat`, `derive`, `metric`, …) are changed key by key, and `keep` names the cases that stay. A
list of metrics, `metric = [{ … }, { … }]`, takes the place of the experiment's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import short, visible
from fedquilt.experiment.design.axes import Axis
from fedquilt.experiment.design.conditions import axis_number, case_of
from fedquilt.experiment.design.keys import VARYING_TABLES, flattened
from fedquilt.experiment.toml import Table

FULL = "full"
"""The scale of the file itself, whether or not it says more of it."""

_DEPTHS = {"case": 2, "zip": 1}
"""How deep the keys of a table are: those of a case are below its axis and its name."""

_ANY_KEY = ("case", "metric", "significance", "experiment", "search")
"""Tables to which a scale may add keys; to the others only those that are no keys of the spec, such as `tune.folds`."""

_MERGED = ("grid", "zip", "tune", "repeat", "derive", *_ANY_KEY)
"""Tables of an experiment that a scale may change."""


def chosen_scale(tables: Mapping[str, Any], name: str | None, source: str) -> Table:
    """Return what the scale of that name changes; nothing without a name."""
    scales = tables.get("scale", {})
    if not isinstance(scales, dict) or not all(isinstance(each, dict) for each in scales.values()):
        raise SpecError(f"{source}: [scale]: write a table for each, such as [scale.small], got {short(scales)}")
    for scale, content in scales.items():
        for key in content:
            table = key.partition(".")[0]
            known = [*VARYING_TABLES, *_MERGED, "keep"]
            if table not in known:
                where = f"{source}: [scale.{visible(scale, 40)}]"
                raise SpecError(f"{where} {visible(key, 80)}: there is no such table; {nearest(table, known)}")
    if name is None or (name == FULL and FULL not in scales):
        return {}
    if name not in scales:
        about = f"; {nearest(name, scales)}" if scales else ": the file has none; write [scale.small], for example"
        raise SpecError(f"{source}: there is no scale {visible(name, 40)}{about}")
    found: Table = scales[name]
    return found


def scaled(tables: Mapping[str, Any], scale: Mapping[str, Any], where: str) -> Table:
    """Change the experiment's tables by those of a scale."""
    changed = copy.deepcopy(dict(tables))
    for table, content in scale.items():
        if table == "metric" and isinstance(content, list):
            changed[table] = content
        elif table in _MERGED:
            before, depth = changed.get(table, {}), _DEPTHS.get(table, 0)
            changed[table] = _merged(before, content, f"{where} {table}", depth, table in _ANY_KEY)
    return changed


def _merged(before: object, content: object, where: str, depth: int, any_key: bool) -> Table:
    """Change the keys of a table, or of those that are so deep inside of it."""
    if not isinstance(content, dict):
        raise SpecError(f"{where}: must be a table, got {short(content)}")
    if not isinstance(before, dict):
        raise SpecError(f"{where}: the file has several, which a table cannot change; write a list to replace them all")
    known, changes = (dict(each) if depth else dotted(each) for each in (before, content))
    for key, value in changes.items():
        if key not in known and (depth or not any_key) and (depth or "." in key):
            raise SpecError(f"{where} {visible(key, 80)}: the file has no such key; {nearest(key, known)}")
        if depth:
            changes[key] = _merged(known[key], value, f"{where} {visible(key, 40)}", depth - 1, any_key)
    return known | changes


def dotted(table: Mapping[str, Any]) -> Table:
    """Write the keys of a table with that of the spec which they belong to; a quoted key already has it.

    >>> dotted({"method": {"lr": [0.1]}, "run.seed": [1], "by": "test"})
    {'method.lr': [0.1], 'run.seed': [1], 'by': 'test'}
    """
    found: Table = {}
    for name, value in table.items():
        inside = isinstance(value, dict) and name in VARYING_TABLES
        found |= {f"{name}.{key}": each for key, each in value.items()} if inside else {name: value}
    return found


def scale_keys(scale: Mapping[str, Any], where: str) -> Table:
    """Return the keys of the spec that a scale sets in every case."""
    return flattened({key: value for key, value in scale.items() if key.partition(".")[0] in VARYING_TABLES}, where)


def kept(axes: Sequence[Axis], scale: Mapping[str, Any], where: str) -> tuple[Axis, ...]:
    """Keep the cases that a scale names, in the order of the file."""
    keep = scale.get("keep", {})
    if not isinstance(keep, dict):
        raise SpecError(f'{where} keep: must be a table of cases, as in {{ method = ["FedAvg"] }}, got {short(keep)}')
    result = list(axes)
    for name, values in keep.items():
        number = axis_number(axes, name, f"{where} keep")
        axis = result[number]
        each = values if isinstance(values, list) else [values]
        names = {case_of(axis, value, f"{where} keep") for value in each}
        if not names:
            raise SpecError(f"{where} keep: {axis.name}: at least one case must stay")
        result[number] = replace(axis, cases={case: change for case, change in axis.cases.items() if case in names})
    return tuple(result)
