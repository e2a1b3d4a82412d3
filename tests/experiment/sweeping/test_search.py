"""Searches with Optuna: the same proposals however many trials run at once, and after interruptions."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.base.errors import SpecError
from fedquilt.experiment.results.cells import cells_of
from fedquilt.experiment.results.proposals import read_proposals
from fedquilt.experiment.sweeping import search

DIGITS: dict[str, Any] = {
    "run": {"rounds": 6},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 5},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "fraction": 1.0, "batch": float("inf")},
    "engine": {"name": "inline"},
    "tune": {"by": "test", "method.lr": {"low": 0.001, "high": 10.0, "log": True}, "method.momentum": [0.0, 0.5]},
}


class StopsAfter:
    """Interrupts a sweep once so many trials have ended."""

    def __init__(self, trials: int) -> None:
        self.trials = trials

    def show(self, board: Any) -> None:
        if sum(row.state in ("finished", "given up") for row in board.rows) >= self.trials:
            raise KeyboardInterrupt

    def close(self) -> None: ...


@pytest.mark.timeout(300)
def test_proposals_depend_on_results_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(search, "STARTUP", 4)  # the others follow from results
    tables = DIGITS | {"search": {"trials": 10, "seed": 2}}
    whole = fedquilt.sweep(tables, out=tmp_path / "whole", jobs=2)
    proposals = read_proposals(tmp_path / "whole")
    assert len(proposals) == 10
    kept = [each.tuned for each in proposals if not each.given_up]
    assert len(kept) < 10, "some are given up"
    assert {row.state for row in whole.trials} <= {"finished", "given up"}
    assert all(
        0.001 <= each.tuned["method.lr"] <= 10 and each.tuned["method.momentum"] in (0, 0.5) for each in proposals
    )
    for done in (3, 6):
        stopped = fedquilt.sweep(tables, out=tmp_path / "parts", jobs=1, watcher=StopsAfter(done))
        assert stopped.interrupted
    fedquilt.sweep(tables, out=tmp_path / "parts", jobs=1)
    assert read_proposals(tmp_path / "parts") == proposals
    (cell,) = cells_of(fedquilt.experiment(tmp_path / "parts" / "experiment.toml"), tmp_path / "parts")
    assert cell.value == max(row.accuracy or 0 for row in whole.trials if row.trial.tuned in kept)
    assert cell.problem is None, "trials that were given up are not missing"
    again = fedquilt.sweep(tables, out=tmp_path / "whole")
    assert all(row.kept for row in again.trials)
    with pytest.warns(RuntimeWarning, match="the search begins anew"):
        other = fedquilt.sweep(tables | {"search": {"trials": 2, "seed": 3}}, out=tmp_path / "whole")
    assert len(other.trials) == 2
    assert (tmp_path / "whole" / "set_aside" / "search.db").exists()


def test_without_optuna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *about: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *about)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(fedquilt.FedquiltError, match=r"\[search\] needs .* pip install 'fedquilt\[search\]'"):
        fedquilt.sweep(DIGITS | {"search": {"trials": 2}}, out=tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r'\[tune\] "method\.lr": a range is searched: add \[search\] with trials = 30'),
        ({"search": {}}, r"\[search\] trials: is required"),
        ({"search": {"trials": 0}}, r"\[search\] trials: must be at least 1"),
        (
            {"search": {"trials": 3, "method.lr": [1]}},
            r"\[search\] method\.lr: values to search are written in \[tune\]",
        ),
        ({"search": {"trials": 3}, "tune": {"by": "test"}}, r"\[search\]: there is nothing to search"),
        (
            {"search": {"trials": 3}, "tune": {"by": "test", "method.lr": {"low": 2, "high": 1}}},
            "low must be below high",
        ),
        (
            {"search": {"trials": 3}, "tune": {"by": "test", "method.lr": {"low": 0, "high": 1, "log": True}}},
            r"a range with log = true begins above 0, got low = 0",
        ),
        (
            {"search": {"trials": 3}, "tune": {"by": "test", "method.lr": {"lowest": 0, "high": 1}}},
            r"\[tune\] \"method\.lr\" lowest: unknown key",
        ),
    ],
)
def test_wrong_searches(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        fedquilt.experiment(DIGITS | changes)
