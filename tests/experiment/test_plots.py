"""What pictures say: how many clients they show, and ticks where there is something to count."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from fedquilt.analysis.curves import History
from fedquilt.experiment import plots
from fedquilt.partition.partition import Partition


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Figure]:
    """Draw, and return the figure instead of writing it."""
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))

    def draw(function: Callable[..., None], *arguments: object) -> Figure:
        function(Path("a.png"), *arguments)
        figures[-1].canvas.draw()
        return figures[-1]

    return draw


def ticks(axis: Axis) -> list[float]:
    low, high = sorted(axis.get_view_interval())
    return [float(tick) for tick in axis.get_ticklocs() if low <= tick <= high]


@pytest.mark.parametrize("rounds", [1, 2, 3, 40])
def test_rounds_are_whole(drawn: Callable[..., Figure], rounds: int) -> None:
    records = [
        {"round": number, "accuracy": 0.5, "per_client_accuracy": 0.4, "loss": 1.0} for number in range(1, rounds + 1)
    ]
    figure = drawn(plots.draw_curves, {"fed_avg": History(records)})
    for axes in figure.axes:
        assert ticks(axes.xaxis)
        assert all(tick == round(tick) for tick in ticks(axes.xaxis))
    assert rounds > 1 or ticks(figure.axes[0].xaxis) == [1.0]


@pytest.mark.parametrize("clients", [1, 2, 300])
def test_clients_are_whole(drawn: Callable[..., Figure], clients: int) -> None:
    (axes,) = drawn(plots.draw_fares, {"fed_avg": [0.8] * clients}).axes
    assert all(tick == round(tick) for tick in ticks(axes.yaxis))


@pytest.mark.parametrize(
    ("clients", "without", "words"),
    [(3, 0, "clients, sorted"), (250, 0, "100 of 250 clients, sorted"), (12, 2, "10 of 12 clients, sorted")],
)
def test_a_picture_of_some_clients_says_so(
    drawn: Callable[..., Figure], clients: int, without: int, words: str
) -> None:
    held = Partition.of([[k] if k >= without else [] for k in range(clients)])
    figure = drawn(plots.draw_clients, held, np.arange(clients) % 3, 3)
    assert figure.axes[-1].get_xlabel().startswith(words)


def curve(last: int, every: int = 1, factor: float = 1.0) -> History:
    rounds = [number for number in range(1, last + 1) if number % every == 0 or number == last]
    return History([{"round": n, "accuracy": factor * n / (n + 5), "loss": 2.0 / n} for n in rounds])


DIVERGED = [{"client": client, "kind": "overflow"} for client in range(9)]


@pytest.mark.parametrize("last", [1, 5, 47, 60, 1999])
def test_the_last_round_is_labelled(drawn: Callable[..., Figure], last: int) -> None:
    figure = drawn(plots.draw_curves, {"a": curve(last)})
    for axes in figure.axes:
        shown = [label for label in axes.get_xticklabels() if label.get_text()]
        assert shown[-1].get_text() == str(last)
        boxes = [label.get_window_extent() for label in shown]
        assert all(first.x1 < second.x0 for first, second in pairwise(boxes)), "none overlap"


def test_few_points_are_marked(drawn: Callable[..., Figure]) -> None:
    few, many = drawn(plots.draw_curves, {"few": curve(100, 10), "many": curve(100)}).axes[0].lines
    assert (few.get_marker(), many.get_marker()) == ("o", "")


def test_curves_that_are_the_same_can_be_told_apart(drawn: Callable[..., Figure]) -> None:
    figure = drawn(plots.draw_curves, {"a": curve(40), "b": curve(40), "c": curve(40), "d": curve(40, factor=0.5)})
    first, second, third, other = figure.axes[0].lines
    assert [line.get_label() for line in figure.axes[0].lines] == ["a", "b (as a)", "c (as a)", "d"]
    assert first.get_linewidth() > second.get_linewidth() == third.get_linewidth() == other.get_linewidth()
    assert second.is_dashed()
    assert third.is_dashed()
    assert second._unscaled_dash_pattern != third._unscaled_dash_pattern  # type: ignore[attr-defined]
    assert not other.is_dashed()


def test_more_runs_than_colours_can_be_told_apart(drawn: Callable[..., Figure]) -> None:
    lines = drawn(plots.draw_curves, {str(n): curve(40, factor=1 - n / 20) for n in range(12)}).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 12


def test_titles_name_the_run_and_say_that_it_diverged(drawn: Callable[..., Figure], tmp_path: Path) -> None:
    assert drawn(plots.draw_curves, {"first": curve(9)}).get_suptitle() == "first"
    records = [{"round": n, "accuracy": 0.1, "loss": 10.0**n, "clients": [1], "dropped": DIVERGED} for n in range(1, 6)]
    figure = drawn(plots.draw_curves, {"fast": History(records)})
    assert figure.get_suptitle() == "fast (diverged by round 5)"
    assert figure.axes[0].lines[-1].get_marker() == "x"
    both = drawn(plots.draw_curves, {"fast": History(records), "slow": curve(9)})
    assert [text.get_text() for text in both.legends[0].get_texts()] == ["fast (diverged)", "slow"]
    clients = drawn(plots.draw_clients, Partition.of([[0], [1]]), np.arange(2), 2, str, "first")
    assert clients.axes[0].get_title(loc="left") == "first: who holds which class"
