"""What a cell of the table shows: `[metric]`, or several of them, `[[metric]]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from fedquilt.base.arguments import Count, NonNegative, Positive
from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import short
from fedquilt.experiment.design.checked import checked_table
from fedquilt.experiment.design.keys import label
from fedquilt.experiment.toml import Table

METRIC_AXIS = "metric"
"""The axis of an experiment with several metrics: the last of its cells' keys."""

Along = Literal["rounds", "batches", "gradients", "bytes", "seconds"]
"""What a learning curve is drawn along."""

COSTS: dict[str, Along] = {
    "rounds_to": "rounds",
    "batches_to": "batches",
    "gradients_to": "gradients",
    "bytes_to": "bytes",
    "seconds_to": "seconds",
}
"""Metrics that say what a target took."""

_ALONG: dict[str, Along] = {**COSTS, "bytes": "bytes", "seconds": "seconds"}

NAMES = ("best", "last", "mean_of_last", "at", *COSTS, "bytes", "seconds")

LOWER = frozenset({"loss", "train_loss", "validation_loss", "local_loss", "error", "perplexity", "rmse", "mae", "mse"})
"""Curves of which lower is better."""


@dataclass(frozen=True)
class CellMetric:
    """What a cell shows of a run.

    - `name`: "best", "last", "mean_of_last" (of the last `n` evaluations), "at" (a number of rounds, batches, gradients,
      bytes or seconds), "rounds_to", "batches_to", "gradients_to", "bytes_to" and "seconds_to" (a `target`), "bytes" and
      "seconds" (of the whole run).
    - `of`: the curve: "accuracy", "loss", "train_loss" or the name of another metric.
    - `at`, `along`: where on the curve. Batches are counted as the largest client's of each round (Hsu 2020, Table 2),
      gradients as those of all clients (McMahan 2017, Figure 9).
    - `relative_to`: a cell, by its case on some axes: accuracies are divided by the best accuracy of that cell, and targets
      are shares of it (relative accuracy, Hsu 2020).
    - `baseline`: a cell, by its case on some axes, that a ratio is shown to: how many times fewer ("speedup") or
      how many times as many ("times").
    """

    label: str
    name: str = "best"
    of: str = "accuracy"
    target: float | None = None
    n: int = 1
    at: float | None = None
    along: Along = "rounds"
    relative_to: dict[str, Any] | None = None
    baseline: dict[str, Any] | None = None
    ratio: Literal["speedup", "times"] = "speedup"

    @property
    def is_cost(self) -> bool:
        """Whether it is something that was spent, and not a value of the curve."""
        return self.name in COSTS or self.name in ("bytes", "seconds")

    @property
    def lower_is_better(self) -> bool:
        """Whether the smallest value is the best."""
        return self.is_cost or self.of in LOWER


def _options(
    name: str = "best",
    label: str | None = None,
    of: str = "accuracy",
    target: Annotated[float, Field(allow_inf_nan=False)] | None = None,
    n: Count | None = None,
    round: Count | None = None,  # noqa: A002 - the key
    batches: Count | None = None,
    gradients: Count | None = None,
    bytes: Positive | None = None,  # noqa: A002 - the key
    seconds: NonNegative | None = None,
    relative_to: dict[str, Any] | None = None,
    baseline: dict[str, Any] | None = None,
    ratio: Literal["speedup", "times"] = "speedup",
) -> None:
    """Name the keys of `[metric]` and their types."""


_POINTS: dict[str, Along] = {
    "round": "rounds",
    "batches": "batches",
    "gradients": "gradients",
    "bytes": "bytes",
    "seconds": "seconds",
}
"""Keys that say where on the curve, and what they go along."""

_LISTS = ("target", *_POINTS)


def read_metrics(content: object, source: str) -> tuple[CellMetric, ...]:
    """Read `[metric]` or `[[metric]]`; a list of targets or points stands for as many metrics.

    >>> [metric.label for metric in read_metrics({"name": "at", "round": [1000, 2500]}, "spec")]
    ['round 1000', 'round 2500']
    """
    if content is None:
        return (CellMetric("best accuracy"),)
    given = content if isinstance(content, list) else [content]
    if not given:
        raise SpecError(f"{source}: metric: is an empty list; name at least one metric, or remove the key")
    if not all(isinstance(each, dict) for each in given):
        raise SpecError(f"{source}: [metric]: must be a table, or several written as [[metric]], got {short(content)}")
    metrics = tuple(
        metric for number, table in enumerate(given, 1) for metric in _read(table, _where(source, number, len(given)))
    )
    names = [metric.label for metric in metrics]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f'{source}: [metric]: two are called "{name}"; give each a label of its own')
    return metrics


def _where(source: str, number: int, count: int) -> str:
    return f"{source}: [metric]" if count == 1 else f"{source}: [[metric]] {number}"


def _read(table: Table, where: str) -> list[CellMetric]:
    several = [key for key in _LISTS if isinstance(table.get(key), list)]
    if not several:
        return [_one(table, where)]
    key = several[0]
    if not table[key]:
        raise SpecError(f"{where} {key}: the list is empty")
    if "label" in table and len(table[key]) > 1:
        raise SpecError(f"{where} label: there is one for {len(table[key])} values of {key}; leave it out")
    return [metric for value in table[key] for metric in _read({**table, key: value}, where)]


def _one(table: Table, where: str) -> CellMetric:
    found = checked_table(_options, table, where)
    name, target = found["name"], found["target"]
    if name not in NAMES:
        raise SpecError(f"{where} name: there is no metric {short(name)}; {nearest(name, NAMES)}")
    points = [key for key in _POINTS if found[key] is not None]
    if len(points) != (name == "at"):
        raise SpecError(
            f"{where}: {name} needs one of {', '.join(_POINTS)}"
            if name == "at"
            else f'{where} {points[0]}: belongs to name = "at"'
        )
    if (target is None) == (name in COSTS):
        wrong = "is required" if target is None else f"belongs to {', '.join(COSTS)}"
        raise SpecError(f"{where} target: {wrong}")
    if found["n"] is not None and name != "mean_of_last":
        raise SpecError(f'{where} n: belongs to name = "mean_of_last"')
    if found["n"] is None and name == "mean_of_last":
        raise SpecError(f"{where} n: is required: of how many evaluations to take the mean")
    if found["relative_to"] is not None and name in ("bytes", "seconds"):
        raise SpecError(
            f"{where} relative_to: accuracies are relative to another cell's, and {name} is not an accuracy"
        )
    if found["ratio"] != "speedup" and found["baseline"] is None:
        raise SpecError(f"{where} ratio: is taken to a baseline: give one too, such as baseline = {{ method = … }}")
    at = found[points[0]] if points else None
    relative = found["relative_to"] is not None
    return CellMetric(
        label=found["label"] or _label(name, found["of"], target, found["n"], points, at, relative),
        name=name,
        of=found["of"],
        target=target,
        n=found["n"] or 1,
        at=at,
        along=_POINTS[points[0]] if points else _ALONG.get(name, "rounds"),
        relative_to=found["relative_to"],
        baseline=found["baseline"],
        ratio=found["ratio"],
    )


def curve_name(of: str) -> str:
    """Name what a curve shows in words.

    >>> curve_name("accuracy"), curve_name("train_loss")
    ('accuracy', 'training loss')
    """
    return "training loss" if of == "train_loss" else of.replace("_", " ")


def _label(
    name: str, of: str, target: float | None, n: int | None, points: list[str], at: float | None, relative: bool
) -> str:
    """Name a metric as a column heading."""
    lower, of = of in LOWER, curve_name(of)
    share = f"{100 * target:g}%" if target is not None and 0 < target <= 1 else label(target)
    words: Mapping[str, str] = {
        "best": f"{'lowest' if lower else 'best'} {of}",
        "last": f"last {of}",
        "mean_of_last": f"{of}, mean of the last {n}",
        "at": f"{points[0] if points else ''} {label(at)}",
    }
    if name in COSTS:
        return f"{COSTS[name]} to {share}{' relative' if relative else ''}"
    return words.get(name, name) + (" (relative)" if relative and name != "at" else "")
