"""Ranks and costs on the benchmark's page, from curves with hand-derived numbers."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from fedquilt.analysis.curves import History
from fedquilt.experiment.design.experiment import Experiment, experiment
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.results.cells import cells_from
from fedquilt.experiment.results.outcome import NOT_RUN, Outcome

TABLES = {
    "experiment": {"rows": ["method"], "columns": ["setting"]},
    "run": {"rounds": 3},
    "data": {"name": "digits"},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg"},
    "case": {
        "method": {
            "FedAvg": {},
            "SCAFFOLD": {"wrap": [{"name": "scaffold"}]},
            "median": {"wrap": [{"name": "median"}]},
        },
        "setting": {
            "IID": {"partition": {"name": "iid", "clients": 10}},
            "shards": {"partition": {"name": "shards", "clients": 10}},
        },
    },
    "repeat": {"run.seed": [1, 2]},
}

CURVES = {
    ("FedAvg", "IID"): (0.5, 0.76, 0.8),  # 95% of 0.8 is reached in round 2
    ("SCAFFOLD", "IID"): (0.76, 0.77, 0.84),  # in round 1, with twice the bytes a round
    ("median", "IID"): (0.1, 0.2, 0.3),
    ("FedAvg", "shards"): (0.0, 0.0, 0.4),  # 95% of 0.4 is reached in round 2.95
    ("SCAFFOLD", "shards"): (0.38, 0.38, 0.38),  # in round 1
    ("median", "shards"): (0.0, 0.0, 0.4),
}


@pytest.fixture
def ranking(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "tools")
    return importlib.import_module("ranking")


def outcome(trial: Trial, without: tuple[str, ...] = ()) -> Outcome:
    if trial.name in without:
        return Outcome(trial, Path(), "not run", History([]), NOT_RUN)
    sent = 100 if trial.cell[0] == "SCAFFOLD" else 50
    records = [
        {"round": at, "accuracy": value, "bytes_down": sent, "bytes_up": sent, "seconds": 0.5}
        for at, value in enumerate(CURVES[trial.cell[0], trial.cell[1]], 1)
    ]
    return Outcome(trial, Path(), "finished", History(records))


def lines(ranking: Any, read: Experiment, without: tuple[str, ...] = ()) -> list[str]:
    outcomes = [outcome(trial, without) for trial in read.trials]
    histories = {each.trial.name: each.history for each in outcomes if each.ended}
    written: str = ranking.ranking(cells_from(read, outcomes), 0, 1, histories)
    return written.splitlines()


def test_ranks_are_averaged_and_costs_compared_with_fedavg(ranking: Any) -> None:
    found = lines(ranking, experiment(TABLES))
    # SCAFFOLD: rounds 1 / 2 and 1 / 2.95, the geometric mean of which is 0.41; twice the bytes; the same time a round.
    assert "| SCAFFOLD | 2.0 | 0.41 | 0.82 | 0.41 | 4 of 4 runs |" in found
    # FedAvg is second on IID clients, and shares the first place on shards.
    assert "| FedAvg | 1.8 | 1.00 | 1.00 | 1.00 | 4 of 4 runs |" in found
    assert "| median | 2.2 | 1.00 | 1.00 | 1.00 | 2 of 4 runs |" in found
    assert [line.split("|")[1].strip() for line in found[4:7]] == ["FedAvg", "SCAFFOLD", "median"]
    assert "Mean ranks: over 2 of 2 columns.  " in found


def test_columns_and_seeds_that_are_not_complete(ranking: Any) -> None:
    read = experiment(TABLES)
    median_on_shards = tuple(trial.name for trial in read.trials if trial.cell == ("median", "shards"))
    found = lines(ranking, read, without=median_on_shards)
    assert "| median | 3.0 | – | – | – | 0 of 2 runs |" in found
    assert "Mean ranks: over 1 of 2 columns, without shards, which are not complete.  " in found
    first = next(trial.name for trial in read.trials if trial.cell == ("SCAFFOLD", "IID"))
    found = lines(ranking, read, without=(first,))
    assert next(line for line in found if line.startswith("| SCAFFOLD")).endswith("| 3 of 3 runs |")


def test_nothing_without_a_whole_column(ranking: Any) -> None:
    read = experiment(TABLES)
    assert lines(ranking, read, without=tuple(trial.name for trial in read.trials if trial.cell[0] == "median")) == []
