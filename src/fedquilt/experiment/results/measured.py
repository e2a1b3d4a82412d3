"""The value of a cell's metric in one run.

Rounds to a target are counted on the monotone curve with linear interpolation, as in McMahan 2017 (§3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedquilt.analysis.curves import History, rounds_to
from fedquilt.base.errors import FedquiltError
from fedquilt.experiment.design.metric import COSTS, LOWER, Along, CellMetric


@dataclass(frozen=True)
class Measured:
    """The value of a metric in one run.

    `beyond` says that the target was not reached, and that `value` was spent without it; `problem` why there is no value.
    """

    value: float | None
    beyond: bool = False
    problem: str | None = None


def curve_name(of: str, split: Literal["test", "validation"]) -> str:
    """Return the curve that stands for another on validation examples.

    >>> curve_name("accuracy", "validation"), curve_name("train_loss", "validation"), curve_name("top5", "test")
    ('validation_accuracy', 'validation_loss', 'top5')
    """
    if split == "test":
        return of
    return "validation_loss" if of in LOWER else "validation_accuracy"


def measure(
    metric: CellMetric,
    history: History,
    reference: float | None = None,
    split: Literal["test", "validation"] = "test",
) -> Measured:
    """Compute a cell's metric for one run; `reference` is the accuracy that a relative one is divided by.

    >>> history = History([{"round": n, "accuracy": x} for n, x in ((1, 0.5), (2, 0.8), (3, 0.7))])
    >>> measure(CellMetric("", "best"), history).value, measure(CellMetric("", "last"), history, reference=0.5).value
    (0.8, 1.4)
    >>> measure(CellMetric("", "rounds_to", target=0.65), history).value
    1.5
    >>> measure(CellMetric("", "rounds_to", target=0.9), history)
    Measured(value=3, beyond=True, problem=None)
    """
    try:
        return _measure(metric, history, reference, split)
    except FedquiltError as error:  # something that this run did not count
        return Measured(None, problem=str(error))


def _measure(
    metric: CellMetric, history: History, reference: float | None, split: Literal["test", "validation"]
) -> Measured:
    if metric.name in ("bytes", "seconds"):
        spent = _spent(history, metric.along)
        return Measured(spent[max(spent)]) if spent else Measured(None, problem="no round was run")
    name = curve_name(metric.of, split)
    rounds, values = history.curve(name)
    if not values:
        return Measured(None, problem=f"{name.replace('_', ' ')} was not measured; [metric] of = … names another curve")
    if metric.name in COSTS:
        return _cost(metric, history, rounds, values, reference)
    found = _on_curve(metric, history, rounds, values)
    if found.value is None or reference is None:
        return found
    return Measured(found.value / reference)


def _on_curve(metric: CellMetric, history: History, rounds: list[int], values: list[float]) -> Measured:
    if metric.name == "best":
        return Measured(min(values) if metric.of in LOWER else max(values))
    if metric.name == "last":
        return Measured(values[-1])
    if metric.name == "mean_of_last":
        if len(values) < metric.n:
            return Measured(None, problem=f"there are {len(values)} evaluations, and not {metric.n}")
        return Measured(sum(values[-metric.n :]) / metric.n)
    spent, at = _spent(history, metric.along), metric.at or 0.0
    if spent[max(spent)] < at:
        return Measured(None, problem=f"ended after {spent[max(spent)]:,.10g} {metric.along}, before {at:,.10g}")
    before = [value for round_, value in zip(rounds, values, strict=True) if spent[round_] <= at]
    if not before:
        return Measured(None, problem=f"was first evaluated after {at:,.10g} {metric.along}")
    return Measured(before[-1])


def _cost(
    metric: CellMetric, history: History, rounds: list[int], values: list[float], reference: float | None
) -> Measured:
    spent = _spent(history, metric.along)
    target = (metric.target or 0.0) * (1.0 if reference is None else reference)
    sign = -1 if metric.of in LOWER else 1
    found = rounds_to([spent[each] for each in rounds], [sign * value for value in values], sign * target)
    return Measured(spent[max(spent)], beyond=True) if found is None else Measured(found)


def _spent(history: History, along: Along) -> dict[int, float]:
    """Return what was spent up to every round."""
    if along == "rounds":
        return {record["round"]: record["round"] for record in history.records}
    keys = ("bytes_down", "bytes_up") if along == "bytes" else (along,)
    sums = [history.cumulative(key) for key in keys]
    return {round_: sum(values) for round_, *values in zip(sums[0][0], *(each for _, each in sums), strict=True)}
