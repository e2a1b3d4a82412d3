"""Experiment files become trials: cases, grids, zipped, tuned and repeated keys."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.base.errors import SpecError

DIGITS: dict[str, Any] = {
    "run": {"rounds": 3},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 10},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "lr": 0.1},
}

METHODS: dict[str, Any] = {
    "method": {
        "FedAvg": {"method": {"name": "fed_avg"}},
        "FedProx": {"wrap": [{"name": "fed_prox", "mu": 0.1}]},
        "FedAvgM": {"method": {"name": "fed_avg_m", "server_momentum": 0.9}},
        "SCAFFOLD": {"wrap": [{"name": "scaffold"}]},
    }
}


def test_whole_methods_and_wrappers_are_cases_of_one_file() -> None:
    experiment = fedquilt.experiment(DIGITS | {"case": METHODS, "tune": {"by": "test", "method.lr": [0.1, 0.3]}})
    assert experiment.axes == {"method": ("FedAvg", "FedProx", "FedAvgM", "SCAFFOLD")}
    assert [trial.name for trial in experiment.trials[:4]] == [
        "FedAvg,lr=0.1", "FedAvg,lr=0.3", "FedProx,lr=0.1", "FedProx,lr=0.3"
    ]  # fmt: skip
    parts = {trial.name: trial.spec.parts for trial in experiment.trials}
    assert parts["FedProx,lr=0.3"]["wrap 1"].arguments["mu"] == 0.1
    assert "wrap 1" not in parts["FedAvg,lr=0.3"]
    assert parts["FedAvgM,lr=0.1"]["method"].arguments["server_momentum"] == 0.9
    assert parts["SCAFFOLD,lr=0.1"]["wrap 1"].name == "scaffold"


def test_a_grid_of_names_starts_from_what_was_written() -> None:
    experiment = fedquilt.experiment(
        DIGITS | {"method": {"server_momentum": 0.5}, "grid": {"method.name": ["fed_avg_m", "fed_avg"]}}
    )
    first, second = (trial.spec.parts["method"].arguments for trial in experiment.trials)
    assert first["server_momentum"] == 0.5
    assert "server_momentum" not in second


def test_repeats_are_zipped_and_part_of_no_cell() -> None:
    experiment = fedquilt.experiment(
        DIGITS | {"grid": {"method.batch": [10, math.inf]}, "repeat": {"run.seed": [1, 2], "partition.seed": [5, 6]}}
    )
    assert experiment.axes == {"batch": ("10", "inf")}
    assert [trial.repeated for trial in experiment.trials[:2]] == [
        {"run.seed": 1, "partition.seed": 5}, {"run.seed": 2, "partition.seed": 6}
    ]  # fmt: skip
    assert {trial.cell for trial in experiment.trials} == {("10",), ("inf",)}


def test_zipped_keys_are_one_axis() -> None:
    experiment = fedquilt.experiment(
        DIGITS | {"zip": {"size": {"partition.clients": [10, 20], "method.fraction": [0.5, 0.25]}}}
    )
    assert experiment.axes == {"size": ("clients=10,fraction=0.5", "clients=20,fraction=0.25")}
    assert [trial.spec.parts["method"].arguments["fraction"] for trial in experiment.trials] == [0.5, 0.25]


def test_the_resolved_file_gives_the_same_trials(tmp_path: Path) -> None:
    tables = DIGITS | {"case": METHODS, "scale": {"small": {"run": {"rounds": 2}, "keep": {"method": ["FedAvg"]}}}}
    first = fedquilt.experiment(tables, ["partition.clients=4"], scale="small")
    (tmp_path / "experiment.toml").write_text(first.to_toml())
    again = fedquilt.experiment(tmp_path / "experiment.toml")
    assert [trial.name for trial in again.trials] == [trial.name for trial in first.trials] == ["FedAvg"]
    assert again.trials[0].spec.resolved() == first.trials[0].spec.resolved()
    assert again.trials[0].spec.options.rounds == 2
    (tmp_path / "rates.toml").write_text(tomli_w.dumps(DIGITS | {"grid": {"method.lr": [0.1]}}))
    (tmp_path / "experiment.toml").write_text(fedquilt.experiment(tmp_path / "rates.toml").to_toml())
    assert fedquilt.experiment(tmp_path / "experiment.toml").title == "rates", "not the resolved file's own name"
    assert again.trials[0].spec.parts["partition"].arguments["clients"] == 4


numbers = st.lists(st.floats(1e-4, 1.0).map(lambda x: round(x, 6)), min_size=1, max_size=4, unique=True)
seeds = st.lists(st.integers(0, 2**31), min_size=1, max_size=3, unique=True)


@settings(max_examples=25, deadline=None)
@given(grid=numbers, tuned=numbers, repeated=seeds, cases=st.integers(1, 4))
def test_trials_are_the_product_and_each_has_its_own_folder(
    grid: list[float], tuned: list[float], repeated: list[int], cases: int
) -> None:
    experiment = fedquilt.experiment(
        DIGITS
        | {
            "case": {"method": dict(list(METHODS["method"].items())[:cases])},
            "grid": {"method.fraction": grid},
            "tune": {"by": "test", "method.lr": tuned},
            "repeat": {"run.seed": repeated},
        }
    )
    trials = experiment.trials
    assert len(trials) == len(grid) * len(tuned) * len(repeated) * cases
    assert len({trial.name for trial in trials}) == len(trials)
    assert len({trial.cell for trial in trials}) == len(grid) * cases, "neither tuned nor repeated keys make cells"
    for trial in trials:
        arguments = trial.spec.parts["method"].arguments
        assert arguments["lr"] == trial.tuned["method.lr"]
        assert trial.spec.options.seed == trial.repeated["run.seed"]


def test_a_single_run_is_no_experiment() -> None:
    with pytest.raises(SpecError, match="describes a single run: use `fedquilt run`"):
        fedquilt.experiment(DIGITS)


def test_several_metrics_are_several_columns() -> None:
    """Wherever the file puts its own axes, and unless it puts them into rows."""
    tables = DIGITS | {
        "grid": {"method.lr": [0.1], "method.batch": [10]},
        "metric": [{"name": "best"}, {"name": "last"}],
    }
    layouts = [
        {},
        {"columns": ["batch"]},
        {"rows": ["lr"], "columns": ["batch"]},
        {"rows": ["metric"], "columns": ["lr", "batch"]},
    ]
    found = [fedquilt.experiment(tables | {"experiment": layout}) for layout in layouts]
    assert [(each.rows, each.columns) for each in found] == [
        (("lr", "batch"), ("metric",)),
        (("lr",), ("batch", "metric")),
        (("lr",), ("batch", "metric")),
        (("metric",), ("lr", "batch")),
    ]


def test_it_shows_itself_in_a_line_and_in_a_notebook() -> None:
    tables = DIGITS | {"case": METHODS, "tune": {"by": "test", "method.lr": [0.1, 0.3]}, "repeat": {"run.seed": [1, 2]}}
    experiment = fedquilt.experiment(tables | {"experiment": {"title": "A < B"}})
    cases = ", ".join(METHODS["method"])
    count = len(experiment.trials)
    assert (
        repr(experiment)
        == f"Experiment('A < B', method: {cases}; tuned: method.lr; repeated: run.seed; trials: {count})"
    )
    shown = experiment._repr_html_()
    assert "<td>A &lt; B</td>" in shown
    assert f"<td>trials</td><td>{count}</td>" in shown


@pytest.mark.parametrize("name", ["report", "Report", "set_aside", "experiment.toml", "search.db", "mlflow.db"])
def test_no_trial_has_the_folder_of_something_else(name: str) -> None:
    trials = fedquilt.experiment(DIGITS | {"case": {"method": {name: {}, "other": {"method": {"epochs": 2}}}}}).trials
    assert trials[0].name.startswith(f"{name}-")
    assert trials[1].name == "other"


def test_a_scale_may_have_metrics_of_its_own() -> None:
    one = {"name": "at", "round": [2, 3]}
    small = {"run": {"rounds": 2}, "metric": [{"name": "at", "round": [1, 2]}, {"name": "best"}]}
    tables = DIGITS | {"case": METHODS, "metric": [one], "scale": {"small": small}}
    assert [metric.label for metric in fedquilt.experiment(tables).metrics] == ["round 2", "round 3"]
    assert [metric.label for metric in fedquilt.experiment(tables, scale="small").metrics] == [
        "round 1",
        "round 2",
        "best accuracy",
    ]
