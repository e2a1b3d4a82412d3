"""Tuned values that race to a target: the slower ones are given up, and the table is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.analysis.curves import History
from fedquilt.experiment.results.cells import cells_from, cells_of
from fedquilt.experiment.results.outcome import Outcome
from fedquilt.experiment.results.race import is_raced, overtaken, races_of
from fedquilt.experiment.sweeping.check import check

TARGET, NOWHERE = 0.7, Path("nowhere")
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
    return Outcome(experiment.trials[index], NOWHERE, state, History(records))


@pytest.mark.parametrize(
    ("changes", "raced"),
    [
        ({}, True),
        ({"metric": {"name": "last"}}, False),
        ({"metric": {"name": "rounds_to", "target": [0.5, TARGET]}}, False),
        ({"tune": TABLES["tune"] | {"race": False}}, False),
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
    assert [each.state for each in overtaken(experiment, [behind, quick])] == ["given up", "finished"]
    assert [each.state for each in overtaken(experiment, [not_yet, quick])] == ["interrupted", "finished"]
    (cell,) = cells_from(experiment, [behind, quick])
    assert cell.value == pytest.approx(2.8)
    assert (cell.problem, cell.chosen) == (None, {"method.lr": 0.1})
    (cell,) = cells_from(experiment, [not_yet, quick])
    assert cell.problem == "1 of 2 trials without a result"


def test_a_failed_trial_is_not_overtaken_and_overtakes_nobody() -> None:
    experiment = fedquilt.experiment(TABLES)
    quick = outcome(experiment, 1, [0.1, 0.3, 0.8], "finished")
    failed = outcome(experiment, 0, [0.1, 0.2, 0.3], "failed")
    assert [each.state for each in overtaken(experiment, [failed, quick])] == ["failed", "finished"]
    failed, behind = outcome(experiment, 1, [0.1, 0.3, 0.8], "failed"), outcome(experiment, 0, [0.1, 0.2, 0.3, 0.4])
    assert [each.state for each in overtaken(experiment, [behind, failed])] == ["interrupted", "failed"]


def test_evaluations_count_and_not_the_rounds_between_them() -> None:
    """After round 14 of evaluations every ten rounds, the target may still turn out to have been reached at 10.5."""
    experiment = fedquilt.experiment(TABLES | {"run": TABLES["run"] | {"eval_every": 10}})
    slow, quick = experiment.trials
    evaluated = History([{"round": 10, "accuracy": 0.1}, {"round": 20, "accuracy": 0.8}])  # reached after 18.6
    between = History([{"round": 10, "accuracy": 0.6}, *({"round": n, "accuracy": None} for n in range(11, 20))])
    outcomes = [Outcome(slow, NOWHERE, "interrupted", between), Outcome(quick, NOWHERE, "finished", evaluated)]
    assert overtaken(experiment, outcomes)[0].state == "interrupted"
    race = races_of(experiment)[slow.cell]
    race.note(outcomes[1])
    race.advanced(slow, 18)
    assert not race.overtaken(slow)
    race.advanced(slow, 20)
    assert race.overtaken(slow)


def test_repeats_count_together() -> None:
    """With two seeds, a combination is given up when both together have taken as many rounds as the best one's two."""
    experiment = fedquilt.experiment(TABLES | {"repeat": {"run.seed": [1, 2]}})
    quick = [outcome(experiment, index, [0.1, 0.3, 0.8], "finished") for index in (2, 3)]  # 5.6 rounds in all
    half = outcome(experiment, 0, [0.1, 0.8], "finished")
    three, four = (outcome(experiment, 1, [0.1] * rounds) for rounds in (3, 4))
    waiting = Outcome(experiment.trials[1], NOWHERE, "not run", History([]))
    assert [each.state for each in overtaken(experiment, [half, three, *quick])][1] == "interrupted"
    assert [each.state for each in overtaken(experiment, [half, four, *quick])][1] == "given up"
    assert [each.state for each in overtaken(experiment, [half, four, quick[0]])][1] == "interrupted"
    assert [each.state for each in overtaken(experiment, [half, waiting, *quick])][1] == "not run"
    (cell,) = cells_from(experiment, [half, four, *quick])
    assert (cell.problem, cell.chosen) == (None, {"method.lr": 0.1})
    assert cell.value == pytest.approx(2.8)


@pytest.mark.parametrize("state", ["finished", "diverged"])
def test_a_repeat_without_the_target_puts_its_combination_out(state: str) -> None:
    """Its other seeds need not be begun, as soon as another combination has reached the target with all of its own."""
    experiment = fedquilt.experiment(TABLES | {"repeat": {"run.seed": [1, 2]}})
    lost, waiting = outcome(experiment, 0, [0.1], state), Outcome(experiment.trials[1], NOWHERE, "not run", History([]))
    quick = [outcome(experiment, index, [0.1, 0.3, 0.8], "finished") for index in (2, 3)]
    assert [each.state for each in overtaken(experiment, [lost, waiting, *quick])] == [
        *(state, "given up"),
        *("finished", "finished"),
    ]
    assert cells_from(experiment, [lost, waiting, *quick])[0].problem is None
    assert overtaken(experiment, [lost, waiting, quick[0]])[1].state == "not run"


def test_a_sweep_gives_up_what_is_overtaken(tmp_path: Path, quick_sweeps: None) -> None:
    tables = TABLES | {"run": {"rounds": 100_000, "stop_at": TARGET}}  # the slow one does not end by itself
    done = fedquilt.sweep(tables, out=tmp_path / "race", jobs=2)
    slow, quick = done.trials
    assert (slow.state, quick.state) == ("given up", "finished")
    assert slow.reason == "another value reached the target in fewer rounds, all repeats together"
    assert fedquilt.summary(done.folder / slow.name)["state"] == "given up"
    assert (done.folder / slow.name / "log.txt").read_text().endswith(f"given up: {slow.reason}\n")
    (cell,) = done.cells
    assert cell.problem is None
    estimate = check(done.experiment, out=done.folder, measure=False)
    assert (estimate.trials, estimate.given_up) == (0, 1)
    fedquilt.report(done.folder, out=tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text()
    assert "2 of 2 trials at their end (1 given up)" in page
    again = fedquilt.sweep(tables, out=tmp_path / "race", jobs=2)
    assert [(row.state, row.kept) for row in again.trials] == [("given up", True), ("finished", True)]
    assert cells_of(again.experiment, tmp_path / "race")[0].value == cell.value
    alone = tables | {"tune": {"by": "test", "method.lr": [0.1]}}
    assert fedquilt.sweep(alone, out=tmp_path / "alone", jobs=1).cells[0].value == cell.value
