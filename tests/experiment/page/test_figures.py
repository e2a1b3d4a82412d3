"""What figures say: which curves, clients and classes they show, under which names, in which colours."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.analysis.curves import History
from fedquilt.data.data import Data, Split
from fedquilt.experiment.contents import Contents
from fedquilt.experiment.holdings import Holdings, holdings_of, read_holdings
from fedquilt.experiment.page.client_accuracies import figure_of_client_accuracies
from fedquilt.experiment.page.clients import figure_of_clients
from fedquilt.experiment.page.cost import figure_of_cost
from fedquilt.experiment.page.curves import FEW, MOST, Line, figure_of_curves, points
from fedquilt.experiment.page.figure import Figure
from fedquilt.experiment.page.heat_map import Square, figure_of_heat_maps, heat_map
from fedquilt.experiment.page.palette import class_colours, line_look
from fedquilt.experiment.page.part import RunGroup, populations_of
from fedquilt.experiment.page.source import ReadRun
from fedquilt.experiment.sealed import DamagedError, sealed_json
from fedquilt.partition.partition import Partition


def curve(last: int, every: int = 1, factor: float = 1.0) -> History:
    rounds = [number for number in range(1, last + 1) if number % every == 0 or number == last]
    costs = {"seconds": 2.0, "bytes_up": 10**6, "bytes_down": 2 * 10**6, "batches": 5}
    return History([{"round": n, "accuracy": factor * n / (n + 5), "loss": 2.0 / n} | costs for n in rounds])


def spec_of(figure: Figure, name: str | None = None) -> dict[str, Any]:
    specs = figure.specs()
    return specs[name or next(iter(specs))]


def names(spec: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in spec["usermeta"]["legend"]["entries"]]


def svg(figure: Figure, folder: Path) -> str:
    (file,) = figure.write(folder, ["svg"])[:1]
    return file.read_text(encoding="utf-8")


def every(spec: Any, key: str) -> Iterator[Any]:
    if isinstance(spec, dict):
        for name, value in spec.items():
            if name == key:
                yield value
            yield from every(value, key)
    elif isinstance(spec, list):
        for value in spec:
            yield from every(value, key)


@pytest.mark.parametrize("last", [1, 5, 47, 60, 1999])
def test_the_last_round_is_labelled(last: int, tmp_path: Path) -> None:
    text = svg(figure_of_curves([Line("a", (curve(last),))]), tmp_path)
    labels = re.search(r'class="mark-group role-axis".*?aria-label="X-axis.*?role-axis-label.*?</g>', text, re.DOTALL)
    assert labels is not None
    found = re.findall(r">([\d,]+)</text>", labels.group(0))
    assert found[-1].replace(",", "") == str(last)


def test_the_mean_and_spread_of_repeats_over_everything() -> None:
    histories = tuple(curve(3, factor=factor) for factor in (0.5, 1.0, 0.75))
    found = points(Line("a", histories), "accuracy")
    accuracies = np.array([[100 * value for value in history.accuracy] for history in histories])
    assert [row["value"] for row in found] == pytest.approx(accuracies.mean(axis=0).tolist(), rel=1e-5)
    assert [row["high"] - row["value"] for row in found] == pytest.approx(
        accuracies.std(axis=0, ddof=1).tolist(), rel=1e-4
    )
    assert [(row["megabytes"], row["seconds"], row["batches"], row["runs"]) for row in found] == [
        (3.0, 2.0, 5.0, 3), (6.0, 4.0, 10.0, 3), (9.0, 6.0, 15.0, 3),
    ]  # fmt: skip


def test_a_repeat_that_is_not_so_far_counts_where_it_is() -> None:
    found = points(Line("a", (curve(4), curve(2, factor=0.5))), "accuracy")
    assert [row["runs"] for row in found] == [2, 2, 1, 1]


def test_what_is_lost_is_not_added_up() -> None:
    whole = curve(4)
    found = points(Line("a", (History([whole.records[0], *whole.records[2:]], done=4),)), "accuracy")
    assert [row["round"] for row in found] == [1, 3, 4]
    assert not any("seconds" in row for row in found)


def test_long_curves_are_thinned_out() -> None:
    found = points(Line("a", (curve(5000),)), "accuracy")
    assert len(found) == MOST
    assert (found[0]["round"], found[-1]["round"]) == (1, 5000)


def test_few_points_are_marked() -> None:
    few, many = curve(FEW), curve(FEW + 1)
    marks = [
        [layer["mark"]["type"] for layer in spec_of(figure_of_curves([Line("a", (h,))]))["layer"]] for h in (few, many)
    ]
    assert [kinds.count("point") for kinds in marks] == [2, 1], "the last one shows what the mouse is near"


def test_corners_of_a_curve_do_not_reach_beyond_its_values() -> None:
    lines = [layer["mark"] for layer in spec_of(figure_of_curves([Line("a", (curve(9),))]))["layer"]]
    joins = [mark.get("strokeJoin") for mark in lines if mark["type"] == "line"]
    assert joins == ["round"], "a pointed corner of a zigzag would look like a higher value"


def test_monotonic_curves_show_the_best_accuracy_so_far() -> None:
    accuracies = [0.5, 0.25, 0.75, 0.7]
    records = [
        {"round": n, "accuracy": a, "loss": 1 - a, "metrics": {"error": 1 - a}, "seconds": 1.0}
        for n, a in enumerate(accuracies, 1)
    ]
    history = History(records)
    figure = figure_of_curves([Line("a", (history,), monotonic=True)])
    found = points(Line("a", (history,), monotonic=True), "accuracy")
    assert [point["value"] for point in found] == [50, 50, 75, 75]
    assert [point["value"] for point in points(Line("a", (history,), monotonic=True), "loss")] == [0.5, 0.75, 0.25, 0.3]
    assert [point["value"] for point in points(Line("a", (history,), monotonic=True), "error")] == [50, 50, 25, 25]
    titles = {name: json.dumps(spec) for name, spec in figure.specs().items()}
    assert "best test accuracy so far (%)" in titles["test accuracy"]
    assert "so far" not in titles["test loss"]


def test_curves_that_are_the_same_can_be_told_apart() -> None:
    lines = [Line(name, (curve(40),)) for name in "abc"] + [Line("d", (curve(40, factor=0.5),))]
    spec = spec_of(figure_of_curves(lines))
    assert names(spec) == ["a", "b (as a)", "c (as a)", "d"]
    dashes = [entry["dash"] for entry in spec["usermeta"]["legend"]["entries"]]
    assert dashes == [[1, 0], [7, 7], [7, 7], [1, 0]]


def test_more_runs_than_colours_can_be_told_apart() -> None:
    assert len({line_look(number) for number in range(28)}) == 28
    spec = spec_of(figure_of_curves([Line(str(n), (curve(40, factor=1 - n / 20),)) for n in range(12)]))
    looks = [(entry["colour"], str(entry["dash"])) for entry in spec["usermeta"]["legend"]["entries"]]
    assert len(set(looks)) == 12


def simulated(colour: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How a colour looks without green cones (Machado 2009, deuteranopia), in linear light."""
    value = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    matrix = np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    )
    return np.asarray((matrix @ linear).clip(0, 1) ** (1 / 2.4))


def test_colours_differ_for_colour_blind_readers() -> None:
    for colours in ([line_look(n)[0] for n in range(7)], class_colours(10)):
        seen = [simulated(colour) for colour in colours]
        apart = [np.linalg.norm(one - other) for place, one in enumerate(seen) for other in seen[:place]]
        assert min(apart) > 0.12


def test_names_say_that_a_run_diverged() -> None:
    dropped = [{"client": client, "kind": "overflow"} for client in range(9)]
    records = [{"round": n, "accuracy": 0.1, "loss": 10.0**n, "clients": [1], "dropped": dropped} for n in range(1, 6)]
    spec = spec_of(figure_of_curves([Line("fast", (History(records),)), Line("slow", (curve(9),))]))
    assert names(spec) == ["fast (diverged)", "slow"]


def population(
    classes: int, clients: int = 5, class_names: tuple[str, ...] | None = None, without: int = 0
) -> Holdings:
    labels = np.arange(max(3 * classes, clients)) % classes
    split = Split(torch.zeros(len(labels), 1), torch.from_numpy(labels))
    held = fedquilt.iid(labels, clients=clients)
    if without:
        held = Partition.of([[] if k < without else held.client(k).tolist() for k in range(clients)])
    return holdings_of(Data("some", split, split, classes, class_names=class_names), held)


@pytest.mark.parametrize(
    ("clients", "without", "words"),
    [(3, 0, "3 clients, sorted"), (250, 0, "100 of 250 clients, sorted"), (12, 2, "10 of 12 clients, sorted")],
)
def test_a_figure_of_some_clients_says_so(clients: int, without: int, words: str, tmp_path: Path) -> None:
    assert words in svg(figure_of_clients({"a": population(3, clients, without=without)}), tmp_path)


@pytest.mark.parametrize("classes", [2, 10, 26, 52])
def test_a_legend_lists_every_class_and_none_lies_on_another(classes: int, tmp_path: Path) -> None:
    called = tuple(f"_$species {letter}" for letter in string.ascii_letters[:classes])
    text = svg(figure_of_clients({"a": population(classes, class_names=called)}), tmp_path)
    places = re.findall(r"role-legend-label.*?translate\(([\d.-]+),([\d.-]+)\)", text)
    legend = text[text.index("role-legend-entry") :]
    for name in called:
        assert f">{name}</text>" in legend
    symbols = re.findall(r'<g transform="translate\(([\d.]+),([\d.]+)\)">\s*<path class="background"', legend)
    assert len(set(symbols)) == len(symbols) >= classes or places
    width = float(re.search(r'<svg[^>]* width="([\d.]+)"', text).group(1))  # type: ignore[union-attr]
    assert width < 1400


@pytest.mark.parametrize("classes", [62, 1203])
def test_very_many_classes_have_a_scale(classes: int, tmp_path: Path) -> None:
    text = svg(figure_of_clients({"a": population(classes)}), tmp_path)
    assert "role-legend-gradient" in text


@pytest.mark.parametrize(
    "change", [{"classes": -1}, {"counts": [{"12": 1}] * 5}, {"shown": [1]}, {"measures": {"emd": "x"}}]
)
def test_a_changed_file_of_a_population_is_refused(change: dict[str, Any]) -> None:
    text = population(3).to_json()
    assert read_holdings(text.encode()) == population(3)
    with pytest.raises(DamagedError):
        read_holdings(sealed_json(json.loads(text) | change | {"check": None}).encode())


def test_accuracies_client_by_client(tmp_path: Path) -> None:
    text = svg(figure_of_client_accuracies({"FedAvg": [0.5] * 9 + [0.1], "<Ditto>": [0.9]}), tmp_path)
    assert "&lt;Ditto&gt;" in text
    assert "worst tenth" in text
    spec = spec_of(figure_of_client_accuracies({"FedAvg": [0.5] * 9 + [0.1]}))
    rows = next(iter(spec["datasets"].values()))
    assert [row["clients"] for row in rows if "clients" in row] == [1, 9]
    assert [row["value"] for row in rows if "mark" in row] == [46.0, 10.0]


def test_cost_and_heat_maps(tmp_path: Path) -> None:
    cost = figure_of_cost(
        {"a": [{"megabytes": 1.0, "seconds": 2.0}, {"megabytes": 3.0, "seconds": 2.0}], "b": [{"seconds": 9.0}]}
    )
    assert list(cost.charts) == ["MB sent, up and down", "seconds of training"]
    squares = [Square("0.1", "1", 90.0, best=True), Square("0.1", "0.1", 50.0), Square("1", "1", None, "diverged")]
    text = svg(figure_of_heat_maps({"a": heat_map(squares, "lr", "1 − β", "accuracy (%)")}), tmp_path)
    for words in (">90.0<", ">50.0<", ">diverged<", "1 − β"):
        assert words in text


def test_curves_are_drawn_over_what_was_spent(tmp_path: Path) -> None:
    records = [record | {"gradients": 600} for record in curve(3).records]
    spent = figure_of_curves([Line("a", (History(records),))], over="gradients")
    assert next(every(spec_of(spent), "x"))["field"] == "gradients"
    assert "gradients of examples" in svg(spent, tmp_path)
    lost = figure_of_curves([Line("a", (History(records),)), Line("b", (curve(3),))], over="gradients")
    assert next(every(spec_of(lost), "x"))["field"] == "round", "b has not counted any"


@pytest.mark.parametrize("value", [1e308, -1e308, 1.7e308, 0.0])
def test_enormous_numbers_are_left_out(value: float, tmp_path: Path) -> None:
    records = [record | {"loss": value, "accuracy": value, "seconds": abs(value)} for record in curve(3).records]
    figure = figure_of_curves([Line("a", (History(records), curve(3)))])
    json.dumps(figure.specs(), allow_nan=False)
    figure.write(tmp_path, ["svg"])


@pytest.mark.parametrize(
    ("key", "label"), [("run.seed", "run seed {}"), ("partition.seed", "seed {}"), ("partition.alpha", "alpha {}.0")]
)
def test_populations_are_named_for_what_they_differ_in(key: str, label: str) -> None:
    table, name = key.split(".")
    held = [Holdings(1, 2, None, (0,), ({0: number, 1: 4},), {}) for number in (1, 2)]
    runs = []
    for number, each in enumerate(held, 1):
        tables: dict[str, Any] = {"run": {"seed": 1}, "partition": {"name": "dirichlet", "alpha": 5.0, "seed": 0}}
        tables[table][name] = float(number) if name == "alpha" else number
        found = Contents(tables, True, History([]), (), (), None, (), None, each, None, None, ())
        runs.append(ReadRun(Path(str(number)), found))
    groups = [RunGroup("FedAvg", tuple(runs)), RunGroup("FedProx", tuple(runs))]
    assert populations_of(groups) == {label.format(number): each for number, each in enumerate(held, 1)}
