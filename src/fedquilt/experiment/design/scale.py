"""Scales: the same experiment at another size, such as what two cores finish in minutes.

    [scale.small]
    run.rounds = 20
    repeat."run.seed" = [1, 2]
    keep = { method = ["FedAvg", "FedProx"] }

A key of the spec, and a list to tune over, holds in every case, whatever the case says of it. Tables of the experiment
(`grid`, `zip`, `tune`, `repeat`, `derive`, `metric`, …) are changed key by key, and `keep` names the cases that stay.
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

_MERGED = ("grid", "zip", "tune", "repeat", "derive", "metric", "significance", "case", "experiment", "search")
"""Tables of an experiment that a scale may change."""

_NEW_KEYS = ("tune", "metric", "significance", "experiment", "search")
"""Those that may be given settings which the file leaves at their defaults."""


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
        if table not in _MERGED:
            continue
        if not isinstance(content, dict):
            raise SpecError(f"{where} {table}: must be a table, got {short(content)}")
        changed[table] = _merged(changed.get(table, {}), content, f"{where} {table}", table in _NEW_KEYS)
    return changed


def _merged(before: object, content: Mapping[str, Any], where: str, new: bool) -> Table:
    if not isinstance(before, dict):
        raise SpecError(f"{where}: the file has several of these, and a scale can change a single one only")
    known = dotted(before)
    found = dict(known)
    for key, value in dotted(content).items():
        if key not in known and not (new and "." not in key):
            raise SpecError(f"{where} {visible(key, 80)}: the file has no such key; {nearest(key, known)}")
        found[key] = value
    return _nested(found, before)


def dotted(table: Mapping[str, Any], above: str = "") -> Table:
    """Write nested tables as dotted keys; a quoted key is already dotted.

    >>> dotted({"method": {"lr": [0.1]}, "run.seed": [1]})
    {'method.lr': [0.1], 'run.seed': [1]}
    """
    found: Table = {}
    for key, value in table.items():
        found |= dotted(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


def _nested(keys: Mapping[str, Any], before: Mapping[str, Any]) -> Table:
    """Put dotted keys back where they stood, quoted or not."""
    result: Table = {}
    for key, value in keys.items():
        inner, shape, rest = result, before, key
        while True:
            head = next((each for each in shape if rest == each or rest.startswith(f"{each}.")), rest)
            if rest == head:
                inner[rest] = value
                break
            inner, shape, rest = inner.setdefault(head, {}), shape[head], rest[len(head) + 1 :]
    return result


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
