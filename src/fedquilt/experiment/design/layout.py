"""What `[experiment]` says: the title, which axes go into rows and columns, and how learning curves are drawn."""

from __future__ import annotations

from collections.abc import Sequence

from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import short, visible
from fedquilt.experiment.design.axes import Axis
from fedquilt.experiment.design.conditions import axis_number
from fedquilt.experiment.design.metric import METRIC_AXIS
from fedquilt.experiment.toml import Table

_KEYS = ("title", "source", "caption", "rows", "columns", "monotonic")


def read_about(table: object, source: str) -> Table:
    """Read the table `[experiment]`."""
    if not isinstance(table, dict):
        raise SpecError(f"{source}: [experiment]: must be a table, got {short(table)}")
    for key, value in table.items():
        if key not in _KEYS:
            raise SpecError(f"{source}: [experiment] {visible(key, 80)}: unknown key; {nearest(key, _KEYS)}")
        if key in ("rows", "columns"):
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise SpecError(f"{source}: [experiment] {key}: must be a list of axes, got {short(value)}")
        elif key == "monotonic":
            if not isinstance(value, bool):
                raise SpecError(f"{source}: [experiment] {key}: must be true or false, got {short(value)}")
        elif not isinstance(value, str):
            raise SpecError(f"{source}: [experiment] {key}: must be text in quotes, got {short(value)}")
    return table


def read_layout(
    about: Table, axes: Sequence[Axis], several: bool, source: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes of rows and of columns: those that the file leaves open go to the rows, the last to the columns."""
    names = [axis.name for axis in axes] + [METRIC_AXIS] * several
    found: dict[str, list[str]] = {}
    for key in ("rows", "columns"):
        if key in about:
            where = f"{source}: [experiment] {key}"
            found[key] = [
                name if several and name == METRIC_AXIS else axes[axis_number(axes, name, where)].name
                for name in about[key]
            ]
    given = [name for each in found.values() for name in each]
    if len(set(given)) < len(given):
        raise SpecError(f"{source}: [experiment]: an axis is named twice in rows and columns: {', '.join(given)}")
    if several and METRIC_AXIS not in given and "columns" in found:  # several metrics are several columns
        found["columns"].append(METRIC_AXIS)
        given.append(METRIC_AXIS)
    left = [name for name in names if name not in given]
    if "rows" in found and "columns" in found and left:
        raise SpecError(f"{source}: [experiment]: {left[0]} is neither in rows nor in columns: add it to one of them")
    if "columns" in found:
        return tuple(found.get("rows", left)), tuple(found["columns"])
    if "rows" in found:
        return tuple(found["rows"]), tuple(left)
    return (tuple(left[:-1]), tuple(left[-1:])) if len(left) > 1 else (tuple(left), ())
