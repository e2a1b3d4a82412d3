"""Figures that are no learning curves, and that a file asks for: `[[figure]]`.

[[figure]]
name = "interpolation"          # the loss between two trained models (McMahan 2017, Figure 1)
first = { start = "shared", client = 0 }
second = { start = "shared", client = 1 }

[[figure]]
name = "features"               # features of clients and of all together (Wei 2022, Figure 2)
cell = { method = "FedAvgR" }
along = "rounds"                # a panel for each case of this axis

[[figure]]
name = "population"             # who holds what
cell = { clients = "Non-IID" }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedquilt.base.arguments import Count
from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import short
from fedquilt.experiment.design.axes import Axis
from fedquilt.experiment.design.checked import checked_table
from fedquilt.experiment.design.conditions import axis_number, case_of

NAMES = ("interpolation", "features", "population")


@dataclass(frozen=True)
class ModelOf:
    """A trained model: that of a cell's first repeat; of one client, where every client has a model of its own."""

    cell: tuple[str, ...]
    client: int | None = None


@dataclass(frozen=True)
class FigureRequest:
    """A figure that a file asks for.

    `models` are the two that an interpolation goes between, or the panels of features, or the one whose population is
    drawn; `points` how many values of θ, or examples of each client; `split` is what the loss is measured on. With
    `initial`, features are drawn before training, too.
    """

    name: str
    title: str
    models: tuple[ModelOf, ...]
    split: Literal["train", "test"] = "train"
    points: int | None = None
    initial: bool = False


def _options(
    name: str,
    title: str | None = None,
    first: dict[str, Any] | None = None,
    second: dict[str, Any] | None = None,
    cell: dict[str, Any] | None = None,
    along: str | None = None,
    split: Literal["train", "test"] = "train",
    points: Count | None = None,
    initial: bool = True,
) -> None:
    """Name the keys of `[[figure]]` and their types."""


_TAKEN = {
    "interpolation": {"first", "second", "split", "points"},
    "features": {"cell", "along", "points", "initial"},
    "population": {"cell"},
}


def read_figures(
    content: object, axes: Sequence[Axis], cells: Sequence[tuple[str, ...]], source: str
) -> tuple[FigureRequest, ...]:
    """Read the `[[figure]]` tables."""
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise SpecError(f"{source}: figure: must be an array of tables, written as [[figure]], got {short(content)}")
    return tuple(_figure(each, axes, cells, f"{source}: [[figure]] {number}") for number, each in enumerate(content, 1))


def _figure(
    table: Mapping[str, Any], axes: Sequence[Axis], cells: Sequence[tuple[str, ...]], where: str
) -> FigureRequest:
    found = checked_table(_options, table, where)
    name = found["name"]
    if name not in NAMES:
        raise SpecError(f"{where} name: there is no figure {short(name)}; {nearest(name, NAMES)}")
    for key in table:
        if key not in ("name", "title", *_TAKEN[name]):
            raise SpecError(f"{where} {key}: is not a key of {name}; {nearest(key, _TAKEN[name])}")
    if name == "interpolation":
        models = tuple(_model(table.get(key), axes, cells, f"{where} {key}") for key in ("first", "second"))
    else:
        models = _panels(found["cell"] or {}, found["along"], axes, cells, where)
    return FigureRequest(
        name=name,
        title=found["title"]
        or {"interpolation": "Loss between two models", "features": "Features"}.get(name, "Population"),
        models=models,
        split=found["split"],
        points=found["points"],
        initial=found["initial"] and name == "features",
    )


def _model(given: object, axes: Sequence[Axis], cells: Sequence[tuple[str, ...]], where: str) -> ModelOf:
    if not isinstance(given, dict):
        raise SpecError(
            f"{where}: say which model, by its case on every axis, as in {{ method = … }}, got {short(given)}"
        )
    client = given.get("client")
    if client is not None and (type(client) is not int or client < 0):
        raise SpecError(f"{where} client: must be a client's number, from 0, got {short(client)}")
    found = _cells({key: value for key, value in given.items() if key != "client"}, axes, cells, where)
    if len(found) != 1:
        raise SpecError(f"{where}: names {len(found)} cells, and not one: give its case on every axis")
    return ModelOf(found[0], client)


def _panels(
    given: Mapping[str, Any], along: str | None, axes: Sequence[Axis], cells: Sequence[tuple[str, ...]], where: str
) -> tuple[ModelOf, ...]:
    found = _cells(given, axes, cells, f"{where} cell")
    free = {number for number in range(len(axes)) if len({cell[number] for cell in found}) > 1}
    free -= set() if along is None else {axis_number(axes, along, f"{where} along")}
    if free:
        names = ", ".join(axes[number].name for number in sorted(free))
        raise SpecError(f"{where} cell: leaves {names} open: give its case, or draw a panel for each with along")
    return tuple(ModelOf(cell) for cell in found)


def _cells(
    given: Mapping[str, Any], axes: Sequence[Axis], cells: Sequence[tuple[str, ...]], where: str
) -> list[tuple[str, ...]]:
    numbered = {axis_number(axes, name, where): value for name, value in given.items()}
    cases = {number: case_of(axes[number], value, where) for number, value in numbered.items()}
    found = [cell for cell in cells if all(cell[number] == case for number, case in cases.items())]
    if not found:
        raise SpecError(f"{where}: there is no such cell: a [[when]] leaves it out")
    return found
