"""Writes the numbers of a table: shares in percent, what was spent as counts."""

from __future__ import annotations

from dataclasses import dataclass

from fedquilt.base.text import SHARES
from fedquilt.experiment.design.metric import CellMetric, curve_name
from fedquilt.experiment.design.published import PublishedValue
from fedquilt.experiment.results.cells import Cell

_SHARES = frozenset(
    {*SHARES, "validation_accuracy", "per_client_accuracy", "per_client_accuracy_worst_tenth", "conflict_rate"}
)
MISSING = "–"


@dataclass(frozen=True)
class Unit:
    """How the numbers of a metric are written: multiplied by `factor`, with so many `digits` behind the point."""

    factor: float
    digits: int
    name: str

    def number(self, value: float, sign: bool = False, beside: float | None = None) -> str:
        """Write a number; a real minus where it has a sign, and as many digits as the number that it stands `beside`.

        >>> Unit(100, 2, "%").number(0.8429), Unit(1, 1, "rounds").number(-1474.25, sign=True)
        ('84.29', '−1,474.2')
        >>> Unit(1, 1, "rounds").number(0.053), Unit(1, 1, "rounds").number(0.053, beside=1.9)
        ('0.05300', '0.1')
        """
        leading = abs(self.factor * (value if beside is None else beside))
        digits = self.digits if leading >= 10**-self.digits or not leading else self.digits + 4
        return f"{self.factor * value:{'+' if sign else ''},.{digits}f}".replace("-", "−")


def unit_of(metric: CellMetric) -> Unit:
    """Return how a metric is written.

    >>> unit_of(CellMetric("best accuracy")), unit_of(CellMetric("", "bytes", along="bytes"))
    (Unit(factor=100, digits=2, name='%'), Unit(factor=1e-06, digits=2, name='MB'))
    """
    if metric.is_cost:
        units = {"bytes": Unit(1e-6, 2, "MB"), "seconds": Unit(1, 2, "seconds")}
        return units.get(metric.along, Unit(1, 1, metric.along))
    if metric.of in _SHARES or metric.relative_to is not None:
        return Unit(100, 2, "%")
    return Unit(1, 4, curve_name(metric.of))


def ours(cell: Cell) -> str:
    """Write our value of a cell with its spread, "> t" where a target was not reached, and the ratio to its baseline.

    A cell without a value says so in words: a dash is what papers print for a target that was not reached.
    """
    if cell.value is None:
        return "no result" if cell.run else "not run"
    unit = unit_of(cell.metric)
    if cell.beyond:
        return f"> {unit.factor * cell.value:,.10g}"
    spread = f" ± {unit.number(cell.std, beside=cell.value)}" if cell.std is not None else ""
    ratio = f" ({cell.ratio:,.1f}×)" if cell.ratio is not None else ""
    return f"{unit.number(cell.value)}{spread}{ratio}"


def published(value: PublishedValue | None, metric: CellMetric) -> str:
    """Write a published value as precisely as it was published."""
    if value is None or value.value is None:
        return "" if value is None else MISSING
    factor = unit_of(metric).factor
    number, spread = (None if each is None else f"{factor * each:,.10g}" for each in (value.value, value.std))
    return f"{'> ' if value.beyond else ''}{number}{'' if spread is None else f' ± {spread}'}"


def difference(cell: Cell) -> str:
    """Write ours less the published value, with as many digits as ours."""
    if cell.difference is None:
        return ""
    return unit_of(cell.metric).number(cell.difference, sign=True, beside=cell.value)
