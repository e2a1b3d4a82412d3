"""Published values, cell by cell, with their source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedquilt.base.errors import SpecError
from fedquilt.base.text import short
from fedquilt.experiment.design.axes import Axis
from fedquilt.experiment.design.conditions import axis_number, case_of

_NUMBER = r"([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
_WRITTEN = re.compile(rf"\s*(>)?\s*{_NUMBER}\s*(k)?\s*(?:(?:±|\+/-)\s*{_NUMBER})?\s*$", re.IGNORECASE)
_NOT_REACHED = ("–", "—", "-")
_KEYS = ("source", "cell", "value", "values", "unit")


@dataclass(frozen=True)
class PublishedValue:
    """A published value of one cell; `beyond` says that it lies above `value` ("> 50k"), or was never reached (None)."""

    key: tuple[str, ...]
    value: float | None
    std: float | None
    beyond: bool
    source: str


def read_published(
    content: object, axes: Sequence[Axis], cells: set[tuple[str, ...]], source: str
) -> tuple[PublishedValue, ...]:
    """Read the `[[published]]` tables; `axes` are those of cells' keys, and `cells` the keys that there are."""
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise SpecError(
            f"{source}: published: must be an array of tables, written as [[published]], got {short(content)}"
        )
    found: list[PublishedValue] = []
    for number, table in enumerate(content, 1):
        where = f"{source}: [[published]] {number}"
        for value in _read(table, axes, where):
            if value.key not in cells:
                raise SpecError(f"{where}: there is no cell {', '.join(value.key)}: a [[when]] leaves it out")
            if any((each.key, each.source) == (value.key, value.source) for each in found):
                raise SpecError(f"{where}: {value.source} has a value for {', '.join(value.key)} already")
            found.append(value)
    return tuple(found)


def _read(table: Mapping[str, Any], axes: Sequence[Axis], where: str) -> Iterator[PublishedValue]:
    for key in table:
        if key not in _KEYS:
            raise SpecError(f"{where} {short(key)}: unknown key; known: {', '.join(_KEYS)}")
    source, cell, unit = table.get("source"), table.get("cell", {}), table.get("unit")
    if not isinstance(source, str) or not source:
        raise SpecError(f'{where} source: say where it is published, as in source = "Table 1", got {short(source)}')
    if not isinstance(cell, dict):
        raise SpecError(f'{where} cell: must be a table, as in {{ method = "FedAvg" }}, got {short(cell)}')
    if unit not in (None, "%"):
        raise SpecError(f'{where} unit: must be "%", or left out, got {short(unit)}')
    if ("value" in table) == ("values" in table):
        raise SpecError(f"{where}: give either value, or values by case")
    fixed = {axis_number(axes, name, f"{where} cell"): value for name, value in cell.items()}
    chosen = {number: case_of(axes[number], value, f"{where} cell") for number, value in fixed.items()}
    left = [number for number in range(len(axes)) if number not in chosen]
    if "value" in table and left:
        raise SpecError(
            f"{where} cell: say which cell: it leaves {', '.join(axes[number].name for number in left)} open; "
            "values = { case = value, … } gives one for each"
        )
    for cases, leaf in _leaves(table.get("values", table.get("value")), [axes[number] for number in left], where):
        whole = chosen | dict(zip(left, cases, strict=True))
        place = tuple(whole[number] for number in range(len(axes)))
        value, std, beyond = _number(leaf, f"{where} {', '.join(place)}")
        percent = 100 if unit == "%" else 1
        yield PublishedValue(
            place, value if value is None else value / percent, std if std is None else std / percent, beyond, source
        )


def _leaves(value: object, axes: Sequence[Axis], where: str) -> Iterator[tuple[tuple[str, ...], object]]:
    """Go through values that are nested by the cases of one axis after the other."""
    if not axes:
        yield (), value
        return
    if not isinstance(value, dict):
        raise SpecError(f"{where} values: must be a table by the cases of {axes[0].name}, got {short(value)}")
    for case, inner in value.items():
        name = case_of(axes[0], case, f"{where} values")
        for rest, leaf in _leaves(inner, axes[1:], where):
            yield (name, *rest), leaf


def _number(value: object, where: str) -> tuple[float | None, float | None, bool]:
    """Read 87, "84.29 ± 0.06", "> 50k", or "–" for what was never reached.

    >>> _number("84.29 ± 0.06", ""), _number("> 50k", ""), _number("–", "")
    ((84.29, 0.06, False), (50000.0, None, True), (None, None, True))
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value), None, False
    if isinstance(value, str) and value.strip() in _NOT_REACHED:
        return None, None, True
    match = _WRITTEN.match(value) if isinstance(value, str) else None
    if match is None:
        raise SpecError(
            f'{where}: must be a number, or text such as "84.29 ± 0.06", "> 50k" or "–", got {short(value)}'
        )
    above, number, thousands, std = match.groups()
    found = float(number.replace(",", "")) * (1000 if thousands else 1)
    return found, None if std is None else float(std.replace(",", "")), above is not None
