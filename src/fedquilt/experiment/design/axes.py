"""Axes of an experiment: its named cases, grids and zipped keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedquilt.base.errors import SpecError
from fedquilt.base.text import short, visible
from fedquilt.experiment.design.keys import VARYING_TABLES, flattened, labels, lists, short_names
from fedquilt.experiment.design.search import Values, tuned_values
from fedquilt.experiment.tables import ARRAYS
from fedquilt.experiment.toml import Table

LONGEST_LABEL = 100


@dataclass(frozen=True)
class Change:
    """What a case changes: dotted keys of the spec, and lists of values to tune over in this case alone."""

    keys: Table
    tune: dict[str, Values] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """A row or column heading with its cases, the keys that these change, and `where` it is written, for messages."""

    name: str
    cases: dict[str, Change]
    keys: tuple[str, ...]
    kind: Literal["case", "zip", "grid", "metric"]
    where: str

    @property
    def named(self) -> bool:
        """Whether its cases have names of their own, and not the values of a key."""
        return self.kind != "grid"

    def piece(self, case: str) -> str:
        """Write a case as part of a folder's name."""
        return case if self.named else f"{self.name}={case}"


def read_change(content: Mapping[str, Any], where: str) -> Change:
    """Read what a case, or a condition, changes."""
    tune = tuned_values(content["tune"], f"{where} tune") if "tune" in content else {}
    return Change(flattened({key: value for key, value in content.items() if key != "tune"}, where), tune)


def read_axes(tables: Mapping[str, Any], source: str, varied: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Read the tables `[case]`, `[zip]` and `[grid]`; `varied` are keys that are tuned or repeated."""
    cases, zips = _subtables(tables, "case", source), _subtables(tables, "zip", source)
    grid = lists(tables.get("grid", {}), f"{source}: [grid]")
    zipped = {name: lists(content, f"{source}: [zip.{visible(name)}]") for name, content in zips.items()}
    keys = [*(key for content in zipped.values() for key in content), *grid, *varied]
    shortened = short_names(keys, taken=[*cases, *zips])
    axes = [_case_axis(name, content, source) for name, content in cases.items()]
    axes += [_zip_axis(name, content, source, shortened) for name, content in zipped.items()]
    for key, values in grid.items():
        changes = {text: Change({key: value}) for text, value in zip(labels(values, ""), values, strict=True)}
        axes.append(Axis(shortened[key], changes, (key,), "grid", f'{source}: [grid] "{key}"'))
    _require_once(axes, varied, source)
    return tuple(axes)


def _subtables(tables: Mapping[str, Any], name: str, source: str) -> dict[str, dict[str, Any]]:
    outer = tables.get(name, {})
    example = {"case": "[case.method.FedAvg]", "zip": "[zip.size]"}[name]
    if not isinstance(outer, dict) or not all(isinstance(inner, dict) and inner for inner in outer.values()):
        raise SpecError(f"{source}: [{name}]: write a table for each, such as {example}; got {short(outer)}")
    for inner in outer:
        if inner == "metric":
            raise SpecError(f'{source}: [{name}.metric]: an axis cannot be called "metric": that is what a cell shows')
    return outer


def _case_axis(name: str, content: Mapping[str, Any], source: str) -> Axis:
    changes = {}
    for case, change in content.items():
        where = f"{source}: [case.{visible(name, 40)}.{visible(case, 40)}]"
        if not isinstance(change, dict):
            raise SpecError(
                f"{source}: [case.{visible(name, 40)}] {visible(case, 40)}: a case is a table: write "
                f"[case.AXIS.NAME], such as [case.method.FedAvg], with the tables of the spec that it changes"
            )
        if not case.strip() or not case.isprintable() or len(case) > LONGEST_LABEL:
            raise SpecError(f"{where}: a case's name is 1 to {LONGEST_LABEL} printable characters")
        if case in VARYING_TABLES:
            raise SpecError(f"{where}: the axis is missing: write [case.{case}.{visible(name, 40)}], for example")
        changes[case] = read_change(change, where)
    keys = dict.fromkeys(key for change in changes.values() for key in change.keys)
    return Axis(name, changes, tuple(keys), "case", f"{source}: [case.{visible(name, 40)}]")


def _zip_axis(name: str, content: dict[str, list[Any]], source: str, shortened: Mapping[str, str]) -> Axis:
    where = f"{source}: [zip.{visible(name, 40)}]"
    require_same_length(content, where)
    written = [
        [f"{shortened[key]}={text}" for text in labels(values, f'{where} "{key}"')] for key, values in content.items()
    ]
    changes = {
        ",".join(texts): Change(dict(zip(content, values, strict=True)))
        for texts, values in zip(zip(*written, strict=True), zip(*content.values(), strict=True), strict=True)
    }
    return Axis(name, changes, tuple(content), "zip", where)


def require_same_length(content: Mapping[str, list[Any]], where: str) -> None:
    """Refuse lists that are to change together and are not equally long."""
    if len({len(values) for values in content.values()}) > 1:
        counts = ", ".join(f'"{key}" has {len(values)}' for key, values in content.items())
        raise SpecError(f"{where}: these keys change together, and need equally many values: {counts}")


def _require_once(axes: list[Axis], varied: Mapping[str, Any], source: str) -> None:
    """Refuse a key that varies in two places, of which one would be lost; a case may fix what is tuned elsewhere."""
    homes: dict[str, tuple[str, str]] = {key: (str(table), str(table)) for key, table in varied.items()}
    for axis in axes:
        for key in axis.keys:
            home = homes.get(key)
            fixes = axis.kind == "case" and home is not None and home[0] == "[tune]"
            if home is not None and not fixes and key not in ARRAYS:
                named = f"{axis.where}:" if axis.kind == "grid" else f'{axis.where} "{key}":'
                raise SpecError(f"{named} varies in {home[1]} too; remove it from one of them")
            homes[key] = (axis.kind, axis.where.removeprefix(f"{source}: "))
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f'{source}: two axes are called "{visible(name, 40)}"; give [case] or [zip] another name')
