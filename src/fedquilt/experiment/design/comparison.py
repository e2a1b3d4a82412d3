"""Which cells are compared, and by which test: `[significance]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from fedquilt.base.errors import SpecError
from fedquilt.experiment.design.axes import Axis
from fedquilt.experiment.design.checked import checked_table
from fedquilt.experiment.design.conditions import axis_number


@dataclass(frozen=True)
class Significance:
    """How cells are marked that are not significantly worse than the best of those they are compared with.

    - `across`: the axes along which they are compared; without the table, the axis called "method".
    - `test`: "paired", for repeats that share a seed, or "welch"; `level` of confidence; `sides` of the test.
    """

    across: tuple[str, ...]
    test: Literal["paired", "welch"] = "paired"
    level: float = 0.95
    sides: int = 2


def _options(
    across: str | list[str] = "method",
    test: Literal["paired", "welch"] = "paired",
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95,
    sides: Literal[1, 2] = 2,
) -> None:
    """Name the keys of `[significance]` and their types."""


def read_significance(table: object, axes: Sequence[Axis], repeats: int, source: str) -> Significance | None:
    """Read the table `[significance]`; without it, methods are compared if there are several, and repeats."""
    where = f"{source}: [significance]"
    if table is None:
        methods = [axis for axis in axes if axis.name == "method" and len(axis.cases) > 1]
        return Significance(("method",)) if methods and repeats > 1 else None
    found = checked_table(_options, table, where)
    if repeats < 2:
        raise SpecError(f'{where}: a test needs at least two repeats; write [repeat] "run.seed" = [1, 2, 3]')
    names = [found["across"]] if isinstance(found["across"], str) else found["across"]
    across = tuple(axes[axis_number(axes, name, f"{where} across")].name for name in names)
    return Significance(across, found["test"], found["level"], found["sides"])
