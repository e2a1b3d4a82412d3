"""Tuned values that race to a target: the slower ones are given up, and the table is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.analysis.curves import History
from fedquilt.experiment.results.cells import cells_from, cells_of
from fedquilt.experiment.results.outcome import Outcome
from fedquilt.experiment.results.race import Race, is_raced, overtaken

TARGET = 0.7
TABLES: dict[str, Any] = {
    "run": {"rounds": 60, "stop_at": TARGET},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 10},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "fraction": 0.5},
    "engine": {"name": "inline"},
    "case": {"clients": {"IID": {}}},
    "tune": {"by": "test", "method.lr": [0.001, 0.1]},
    "metric": {"name": "rounds_to", "target": TARGET},
}


def outcome(experiment: Any, index: int, accuracies: list[float], state: str = "interrupted") -> Outcome:
    records = [{"round": number, "accuracy": value} for number, value in enumerate(accuracies, start=1)]
    return Outcome(experiment.trials[index], Path("nowhere"), state, History(records))


@pytest.mark.parametrize(
    ("changes", "raced"),
    [
        ({}, True),
        ({"metric": {"name": "last"}}, False),
        ({"metric": {"name": "rounds_to", "target": [0.5, TARGET]}}, False),
        ({"run": {"rounds": 60}}, False),
        ({"run": {"rounds": 60, "stop_at": 0.9}}, False),
        ({"run": TABLES["run"] | {"validation": 0.1}, "tune": {"by": "validation", "method.lr": [1.0]}}, False),
    ],
)
def test_only_runs_that_stop_at_the_one_target_are_raced(changes: dict[str, Any], raced: bool) -> None:
    experiment = fedquilt.experiment(TABLES | changes)
    assert is_raced(experiment, experiment.trials[0]) is raced


def test_who_is_overtaken() -> None:
    experiment = fedquilt.experiment(TABLES)
    quick = outcome(experiment, 1, [0.1, 0.3, 0.8], "finished")  # after 2.8 rounds
    behind, not_yet = outcome(experiment, 0, [0.1, 0.2, 0.3]), outcome(experiment, 0, [0.1, 0.2])
    assert [each.state for each in overtaken(experiment, [behind, quick])] == ["overtaken", "finished"]
    assert [each.state for each in overtaken(experiment, [not_yet, quick])] == ["interrupted", "finished"]
    (cell,) = cells_from(experiment, [behind, quick])
    assert cell.value == pytest.approx(2.8)
    assert (cell.problem, cell.chosen) == (None, {"method.lr": 0.1})
    (cell,) = cells_from(experiment, [not_yet, quick])
    assert cell.problem == "1 of 2 trials without a result"


def test_a_failed_trial_is_not_overtaken() -> None:
    experiment = fedquilt.experiment(TABLES)
    quick = outcome(experiment, 1, [0.1, 0.3, 0.8], "finished")
    failed = outcome(experiment, 0, [0.1, 0.2, 0.3], "failed")
    assert [each.state for each in overtaken(experiment, [failed, quick])] == ["failed", "finished"]


def test_repeats_count_together() -> None:
    """With two seeds, a combination is given up when both together have taken as many rounds as the best one's two."""
    experiment = fedquilt.experiment(TABLES | {"repeat": {"run.seed": [1, 2]}})
    one, two, three, four = experiment.trials
    race = Race(experiment.trials)
    race.reached(three, 4.5)
    race.advanced(one, 50)
    assert not race.overtaken(one)  # the second seed of the other rate has not reached the target yet
    race.reached(four, 5.5)
    assert race.best == 10.0
    race = Race(experiment.trials)
    race.reached(three, 4.5)
    race.reached(four, 5.5)
    race.reached(one, 3.0)
    race.advanced(two, 6)
    assert not race.overtaken(two)
    race.advanced(two, 7)
    assert race.overtaken(two)
    assert not race.overtaken(three)


def test_a_sweep_gives_up_what_is_overtaken(tmp_path: Path, quick_sweeps: None) -> None:
    tables = TABLES | {"run": {"rounds": 100_000, "stop_at": TARGET}}  # the slow one does not end by itself
    done = fedquilt.sweep(tables, out=tmp_path / "race", jobs=2)
    slow, quick = done.trials
    assert (slow.state, quick.state) == ("pruned", "finished")
    (cell,) = done.cells
    assert cell.problem is None
    again = fedquilt.sweep(tables, out=tmp_path / "race", jobs=2)
    assert [row.name for row in again.trials] == [quick.name]  # the slow one is not begun again
    assert cells_of(again.experiment, tmp_path / "race")[0].value == cell.value
    alone = tables | {"tune": {"by": "test", "method.lr": [0.1]}}
    assert fedquilt.sweep(alone, out=tmp_path / "alone", jobs=1).cells[0].value == cell.value
