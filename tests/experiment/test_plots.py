"""What pictures say: how many clients they show, and ticks where there is something to count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from fedquilt.experiment import plots
from fedquilt.metrics.curves import History
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
    records = [{"round": number, "accuracy": 0.5, "own_accuracy": 0.4, "loss": 1.0} for number in range(1, rounds + 1)]
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
