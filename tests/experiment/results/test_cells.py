"""Cells from runs: metrics as the papers count them, tuned values, repeats, references, baselines, significance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment.design.test_design import DIGITS
from hypothesis import given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.analysis.curves import History
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.results.cells import Cell, cells_from
from fedquilt.experiment.results.outcome import Outcome

Curve = Callable[[Trial], list[float]]


def ended(trial: Trial, accuracies: list[float], state: str = "finished", **more: list[Any]) -> Outcome:
    """A run with these test accuracies, one a round, and other values of its records."""
    records = [
        {"round": number, "accuracy": value, "loss": 1 - value, **{key: each[number - 1] for key, each in more.items()}}
        for number, value in enumerate(accuracies, 1)
    ]
    return Outcome(trial, Path(trial.name), state, History(records), None if state == "finished" else state)


def cells(experiment: Experiment, curve: Curve) -> dict[tuple[str, ...], Cell]:
    return {cell.key: cell for cell in cells_from(experiment, [ended(each, curve(each)) for each in experiment.trials])}


def load(**tables: Any) -> Experiment:
    return fedquilt.experiment(DIGITS | tables)


METHODS = {"method": {"FedAvg": {}, "Centralised": {"method": {"name": "fed_avg", "epochs": 5}}}}


def test_the_mean_of_repeats_and_never_the_best_of_them() -> None:
    scores = {1: 0.5, 2: 0.75, 3: 1.0}
    experiment = load(grid={"method.batch": [10]}, repeat={"run.seed": [1, 2, 3]})
    (cell,) = cells(experiment, lambda trial: [scores[trial.repeated["run.seed"]]]).values()
    assert (cell.value, cell.std, cell.values) == (0.75, 0.25, (0.5, 0.75, 1.0))
    assert len(cell.trials) == 3
    assert cell.chosen == {}


def test_tuned_values_are_chosen_by_the_mean_over_repeats() -> None:
    # The rate 0.3 has the best single run, 0.1 the best mean: the lucky seed does not decide.
    scores = {(0.1, 1): 0.8, (0.1, 2): 0.8, (0.3, 1): 0.95, (0.3, 2): 0.5, (1.0, 1): 0.1, (1.0, 2): 0.1}
    experiment = load(tune={"by": "test", "method.lr": [0.1, 0.3, 1.0]}, repeat={"run.seed": [1, 2]})
    (cell,) = cells(experiment, lambda t: [scores[t.tuned["method.lr"], t.repeated["run.seed"]]]).values()
    assert cell.chosen == {"method.lr": 0.1}
    assert cell.values == (0.8, 0.8)
    assert cell.at_edge == ("method.lr",)


def test_by_validation_the_test_set_has_no_say() -> None:
    experiment = load(
        run={"rounds": 1}, tune={"by": "test", "method.lr": [0.1, 0.3, 1.0]}, metric={"name": "last"}
    )  # fmt: skip
    test, validation = {0.1: 0.9, 0.3: 0.8, 1.0: 0.7}, {0.1: 0.6, 0.3: 0.8, 1.0: 0.7}

    def outcome(trial: Trial) -> Outcome:
        rate = trial.tuned["method.lr"]
        return ended(trial, [test[rate]], validation_accuracy=[validation[rate]])

    (by_test,) = cells_from(experiment, [outcome(trial) for trial in experiment.trials])
    assert (by_test.chosen, by_test.value) == ({"method.lr": 0.1}, 0.9)
    assert experiment.tuning is not None
    by_validation = replace(experiment, tuning=replace(experiment.tuning, by="validation"))
    (cell,) = cells_from(by_validation, [outcome(trial) for trial in experiment.trials])
    assert (cell.chosen, cell.value, cell.at_edge) == ({"method.lr": 0.3}, 0.8, ())


def test_a_diverged_combination_is_never_chosen() -> None:
    experiment = load(tune={"by": "test", "method.lr": [0.1, 0.3]})
    small, large = experiment.trials
    (cell,) = cells_from(experiment, [ended(small, [0.4]), ended(large, [0.9], state="diverged")])
    assert (cell.chosen, cell.value, cell.problem) == ({"method.lr": 0.1}, 0.4, None)
    (cell,) = cells_from(experiment, [ended(each, [0.9], state="diverged") for each in experiment.trials])
    assert cell.value is None
    assert cell.problem == "lr=0.1: diverged"


def test_rounds_to_a_target_that_some_repeats_do_not_reach() -> None:
    curves = {1: [0.5, 0.9, 0.8], 2: [0.1, 0.2, 0.3]}
    experiment = load(repeat={"run.seed": [1, 2]}, metric={"name": "rounds_to", "target": 0.7})
    (cell,) = cells(experiment, lambda trial: curves[trial.repeated["run.seed"]]).values()
    assert (cell.value, cell.beyond, cell.values, cell.std) == (3, True, (1.5,), None)


def test_rates_that_reach_the_target_win_over_those_that_do_not_and_otherwise_the_nearest() -> None:
    curves = {0.1: [0.5, 0.6, 0.7], 0.3: [0.2, 0.3, 0.8], 1.0: [0.79, 0.7, 0.6]}
    tune = {"by": "test", "method.lr": list(curves)}
    near = load(tune=tune, metric={"name": "rounds_to", "target": 0.75})
    (cell,) = cells(near, lambda trial: curves[trial.tuned["method.lr"]]).values()
    assert (cell.chosen, cell.value) == ({"method.lr": 1.0}, 1.0)
    far = load(tune=tune, metric={"name": "rounds_to", "target": 0.9})
    (cell,) = cells(far, lambda trial: curves[trial.tuned["method.lr"]]).values()
    assert (cell.chosen, cell.beyond, cell.value) == ({"method.lr": 0.3}, True, 3)


def test_accuracy_at_rounds_batches_and_gradients() -> None:
    experiment = load(
        grid={"method.batch": [10]},
        metric=[{"name": "at", "round": [1, 3]}, {"name": "at", "batches": 9}, {"name": "at", "gradients": [100, 400]}],
    )
    (trial,) = experiment.trials
    run = ended(trial, [0.5, 0.6, 0.7], batches=[5, 4, 6], gradients=[100, 100, 100])
    found = {cell.key[-1]: cell for cell in cells_from(experiment, [run])}
    assert {key: cell.value for key, cell in found.items()} == {
        "round 1": 0.5, "round 3": 0.7, "batches 9": 0.6, "gradients 100": 0.5, "gradients 400": None
    }  # fmt: skip
    assert found["gradients 400"].problem == "ended after 300 gradients, before 400"
    without = {cell.key[-1]: cell.problem for cell in cells_from(experiment, [ended(trial, [0.5, 0.6, 0.7])])}
    assert without["batches 9"] == "round 1 has no count of batches: an older version of fedquilt recorded it"


def test_bytes_and_training_loss() -> None:
    experiment = load(
        grid={"method.batch": [10]},
        metric=[{"name": "bytes"}, {"name": "bytes_to", "target": 0.55}, {"name": "best", "of": "train_loss"},
                {"name": "mean_of_last", "n": 2}],
    )  # fmt: skip
    run = ended(experiment.trials[0], [0.5, 0.6, 0.7], bytes_up=[10, 10, 10], bytes_down=[30, 30, 30],
                train_loss=[0.9, 0.2, 0.4])  # fmt: skip
    found = {cell.key[-1]: cell.value for cell in cells_from(experiment, [run])}
    assert found == {
        "bytes": 120, "bytes to 55%": pytest.approx(60), "lowest training loss": 0.2,
        "accuracy, mean of the last 2": pytest.approx(0.65),
    }  # fmt: skip


def test_relative_accuracy_to_a_named_centralised_case() -> None:
    """Hsu 2020, Table 5: rounds to shares of the centralised accuracy, with multipliers along the row."""
    experiment = load(
        case=METHODS,
        metric=[
            {"name": "last", "relative_to": {"method": "Centralised"}},
            {
                "name": "rounds_to",
                "target": [0.1, 0.5, 0.9],
                "relative_to": {"method": "Centralised"},
                "baseline": {"metric": "rounds to 10% relative"},
                "ratio": "times",
            },
        ],
    )
    curves = {"FedAvg": [0.04, 0.2, 0.4], "Centralised": [0.4, 0.8, 0.7]}
    found = cells(experiment, lambda trial: curves[trial.cell[0]])
    assert found["FedAvg", "last accuracy (relative)"].value == pytest.approx(0.5)
    row = [found["FedAvg", f"rounds to {share}% relative"] for share in (10, 50, 90)]
    assert [(cell.value, cell.beyond) for cell in row] == [(pytest.approx(1.25), False), (3.0, False), (3, True)]
    assert [cell.ratio for cell in row] == [1.0, pytest.approx(2.4), None]


def test_speed_up_over_a_baseline_cell() -> None:
    """McMahan 2017, Table 1: each column's speed-up over its first row, with one client a round."""
    experiment = load(
        grid={"method.fraction": [0.0, 0.5], "method.batch": [10, 20]},
        metric={"name": "rounds_to", "target": 0.5, "baseline": {"fraction": 0}},
    )
    curves: dict[tuple[str, ...], list[float]] = {
        ("0", "10"): [0, 0, 0, 0.5],
        ("0.5", "10"): [0, 0.5],
        ("0", "20"): [0.5],
        ("0.5", "20"): [0.1, 0.2],
    }
    found = cells(experiment, lambda trial: curves[trial.cell])
    assert {key: cell.ratio for key, cell in found.items()} == {
        ("0", "10"): 1.0, ("0.5", "10"): 2.0, ("0", "20"): 1.0, ("0.5", "20"): None
    }  # fmt: skip


def test_marks_what_is_not_significantly_worse_than_the_best() -> None:
    generator = np.random.default_rng(1)
    seeds, rows = list(range(10)), {}
    common = generator.normal(0, 0.02, 10)
    for name, mean in (("Best", 0.9), ("Near", 0.899), ("Far", 0.8)):
        rows[name] = mean + common + generator.normal(0, 0.004, 10)
    experiment = load(case={"method": {name: {} for name in rows}}, repeat={"run.seed": seeds})
    found = cells(experiment, lambda trial: [float(rows[trial.cell[0]][trial.repeated["run.seed"]])])
    assert [found[(name,)].marked for name in rows] == [True, True, False]
    assert sum(cell.best for cell in found.values()) == 1


def test_nothing_is_marked_beside_a_cell_that_is_not_complete() -> None:
    """Two of three seeds are above everything else: whoever is complete is not the best."""
    means = {"One": 0.7, "Other": 0.6, "Begun": 0.9}
    experiment = load(case={"method": {name: {} for name in means}}, repeat={"run.seed": [0, 1, 2]})
    outcomes = [
        Outcome(trial, Path(), "not run", History([]), "has not been run")
        if (trial.cell[0], trial.repeated["run.seed"]) == ("Begun", 2)
        else ended(trial, [means[trial.cell[0]] + 0.01 * trial.repeated["run.seed"]])
        for trial in experiment.trials
    ]
    found = cells_from(experiment, outcomes)
    assert [len(cell.values) for cell in found] == [3, 3, 2]
    assert not any(cell.best or cell.marked for cell in found)


def test_a_case_without_a_run_says_so_and_does_not_hide_the_others() -> None:
    experiment = load(case=METHODS)
    there, missing = experiment.trials
    found = cells_from(
        experiment, [ended(there, [0.5]), Outcome(missing, Path(), "not run", History([]), "has not been run")]
    )
    assert [(cell.value, cell.problem) for cell in found] == [(0.5, None), (None, "has not been run")]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.floats(0.01, 0.99), min_size=3, max_size=3), min_size=2, max_size=5))
def test_a_repeat_never_wins(scores: list[list[float]]) -> None:
    rates = [0.1 * (number + 1) for number in range(len(scores))]
    experiment = load(tune={"by": "test", "method.lr": rates}, repeat={"run.seed": [0, 1, 2]})
    table = dict(zip(rates, scores, strict=True))
    (cell,) = cells(experiment, lambda t: [table[t.tuned["method.lr"]][t.repeated["run.seed"]]]).values()
    assert set(cell.chosen) == {"method.lr"}
    assert cell.values == tuple(table[cell.chosen["method.lr"]]), "all repeats of one combination"
    assert cell.value == pytest.approx(max(np.mean(each) for each in scores))
