"""Cells from real run folders: what is damaged, foreign or missing costs its own row, and says so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from experiment.design.test_design import DIGITS
from experiment.results.real_runs import ran_in

import fedquilt
from fedquilt import run
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.results.cells import cells_of
from fedquilt.experiment.results.outcome import outcome_of
from fedquilt.experiment.results.selection import trials_of

TABLES: dict[str, Any] = DIGITS | {
    "engine": {"name": "inline"},
    "run": {"rounds": 2, "validation": 0.2},
    "tune": {"by": "validation", "method.lr": [0.001, 0.5]},
    "repeat": {"run.seed": [1, 2]},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    return ran_in(tmp_path_factory.mktemp("experiment"), TABLES)


@pytest.fixture
def copied(ran: tuple[Experiment, Path], tmp_path: Path) -> tuple[Experiment, Path]:
    shutil.copytree(ran[1], tmp_path / "here")
    return ran[0], tmp_path / "here"


def test_the_rate_is_chosen_by_examples_that_were_held_out(ran: tuple[Experiment, Path]) -> None:
    experiment, folder = ran
    (cell,) = cells_of(experiment, folder)
    assert cell.chosen == {"method.lr": 0.5}
    outcomes = [outcome_of(trial, folder) for trial in cell.trials]
    assert cell.values == tuple(max(outcome.history.accuracy) for outcome in outcomes)
    assert all(len(outcome.history.curve("validation_accuracy")[1]) == 2 for outcome in outcomes)
    assert cell.problem is None
    (counted,) = cells_of(fedquilt.experiment(TABLES | {"metric": {"name": "at", "batches": 20}}), folder)
    assert counted.value is not None, "the largest client's batches are logged"


def test_a_damaged_file_costs_its_own_row(copied: tuple[Experiment, Path]) -> None:
    experiment, folder = copied
    path = folder / "lr=0.5,seed=1" / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:50])
    (cell,) = cells_of(experiment, folder)
    assert cell.chosen == {"method.lr": 0.001}, "a combination that is whole is shown in its place"
    assert (cell.problem or "").startswith("1 of 4 trials without a result; lr=0.5,seed=1: is damaged: ")
    shutil.rmtree(folder / "lr=0.001,seed=1")
    shutil.rmtree(folder / "lr=0.001,seed=2")
    (cell,) = cells_of(experiment, folder)
    assert cell.problem is not None
    outcome = outcome_of(experiment.trials[2], folder)
    assert outcome.state == "unusable"
    assert "metrics.jsonl" in (outcome.problem or "")


def test_a_damaged_spec_and_a_foreign_run(copied: tuple[Experiment, Path]) -> None:
    experiment, folder = copied
    (folder / "lr=0.5,seed=1" / "spec.toml").write_text("x =")
    assert outcome_of(experiment.trials[2], folder).state == "unusable"
    shutil.rmtree(folder / "lr=0.5,seed=2")
    shutil.copytree(folder / "lr=0.001,seed=2", folder / "lr=0.5,seed=2")
    assert outcome_of(experiment.trials[3], folder).problem == (
        "holds a run with other settings: [method] lr is 0.001 there, 0.5 in the experiment"
    )
    longer = fedquilt.experiment(TABLES, ["run.rounds=3"])
    assert outcome_of(longer.trials[0], folder).state == "unusable", "a run of fewer rounds is another one"


def test_a_run_from_before_a_key_was_introduced_counts(copied: tuple[Experiment, Path]) -> None:
    """It was run as the key's default does; another value of the key is another run."""
    experiment, folder = copied
    run_folder = RunFolder(folder / experiment.trials[0].name)
    tables = run_folder.read().tables
    assert tables["method"].pop("momentum") == 0.0
    run_folder.begin(tomli_w.dumps(tables), {})
    assert "momentum" not in run_folder.read().tables["method"]
    assert outcome_of(experiment.trials[0], folder).state == "finished"
    other = fedquilt.experiment(TABLES, ["method.momentum=0.5"]).trials[0]
    assert outcome_of(other, folder).problem == (
        "holds a run with other settings: [method] momentum is 0.0 there, 0.5 in the experiment"
    )


def test_the_chosen_values_follow_their_folds(tmp_path: Path) -> None:
    tables = TABLES | {"run": {"rounds": 1}, "tune": {"by": "validation", "folds": 2, "method.lr": [0.001, 0.5]}}
    experiment, _ = ran_in(tmp_path, tables)
    nowhere = trials_of(experiment, tmp_path / "nothing here")
    assert [trial.name for trial in nowhere] == [trial.name for trial in experiment.trials]
    more = [trial for trial in trials_of(experiment, tmp_path) if trial.fold is None]
    assert [trial.name for trial in more] == ["lr=0.5,seed=1", "lr=0.5,seed=2"]
    (cell,) = cells_of(experiment, tmp_path)
    assert (cell.value, cell.problem) == (None, "lr=0.5,seed=1: has not been run; lr=0.5,seed=2: has not been run")
    for trial in more:
        run(trial.spec, out=tmp_path / trial.name)
    (cell,) = cells_of(experiment, tmp_path)
    assert (len(cell.values), cell.problem, cell.chosen) == (2, None, {"method.lr": 0.5})
    assert cell == replace(cell, at_edge=("method.lr",))
