"""Conditional keys: `[[when]]` tables, which hold in some cells only, and cells that are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import short, visible
from fedquilt.experiment.design.axes import Axis, Change, read_change
from fedquilt.experiment.design.keys import label


@dataclass(frozen=True)
class Condition:
    """What changes in the cells that have one of these cases on every axis named; `skip` leaves them out."""

    cases: dict[int, frozenset[str]]
    change: Change
    skip: bool

    def holds(self, cell: Sequence[str]) -> bool:
        """Say whether a cell is one of them."""
        return all(cell[axis] in cases for axis, cases in self.cases.items())


def axis_number(axes: Sequence[Axis], name: object, where: str) -> int:
    """Find an axis by its name or, in a grid, by its key."""
    for number, axis in enumerate(axes):
        if name == axis.name or (not axis.named and (name,) == axis.keys):
            return number
    shown = visible(name, 80) if isinstance(name, str) else short(name)
    raise SpecError(f"{where}: there is no axis {shown}; {nearest(str(name), [axis.name for axis in axes])}")


def case_of(axis: Axis, value: object, where: str) -> str:
    """Find a case of an axis by its name, or by its value in a grid."""
    for text in (label(value), label(value, exact=True)):
        if text in axis.cases:
            return text
    raise SpecError(
        f"{where}: the axis {axis.name} has no case {short(value)}; {nearest(label(value), list(axis.cases))}"
    )


def read_conditions(content: object, axes: Sequence[Axis], source: str) -> tuple[Condition, ...]:
    """Read the `[[when]]` tables."""
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise SpecError(f"{source}: when: must be an array of tables, written as [[when]], got {short(content)}")
    return tuple(_condition(each, axes, f"{source}: [[when]] {number}") for number, each in enumerate(content, 1))


def _condition(content: Mapping[str, Any], axes: Sequence[Axis], where: str) -> Condition:
    chosen, skip = content.get("case"), content.get("skip", False)
    if not isinstance(chosen, dict) or not chosen:
        raise SpecError(f'{where} case: say where it holds, as in case = {{ method = "FedProx" }}, got {short(chosen)}')
    if not isinstance(skip, bool):
        raise SpecError(f"{where} skip: must be true or false, got {short(skip)}")
    cases = {}
    for name, values in chosen.items():
        number = axis_number(axes, name, f"{where} case")
        each = values if isinstance(values, list) else [values]
        cases[number] = frozenset(case_of(axes[number], value, f"{where} case") for value in each)
    rest = {key: value for key, value in content.items() if key not in ("case", "skip")}
    return Condition(cases, read_change(rest, where), skip)
