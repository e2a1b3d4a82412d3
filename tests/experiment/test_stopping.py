"""Runs that stop before their last round, and what their folders say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedquilt

TABLES = {
    "run": {"rounds": 12},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 5},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "fraction": 1.0, "lr": 0.5, "batch": float("inf")},
    "engine": {"name": "inline"},
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("run.patience=2", "no round after round {best} was better, in 2 rounds"),
        ("run.budget_seconds=1e-6", "the budget of 0:00 was used up"),
        ("run.stop_at=0.2", "the accuracy reached 20.00%"),
    ],
)
def test_a_run_stops_early_and_stays_finished(tmp_path: Path, change: str, why: str) -> None:
    stuck = ["method.lr=1e-9"] if "patience" in change else []  # nothing ever gets better
    ended = fedquilt.run(TABLES, [change, *stuck], out=tmp_path / "run")
    done = len(ended.result.history)
    about = fedquilt.summary(tmp_path / "run")
    assert done < 12
    assert not ended.result.interrupted
    assert (about["state"], about["round"]) == ("finished", done)
    assert ended.result.history.best is not None
    assert about["stopped"] == why.format(best=ended.result.history.best[0])
    again = fedquilt.resume(tmp_path / "run")
    assert len(again.result.history) == done, "a resumed run decides as the run itself did"


def test_patience_goes_by_the_loss_where_there_is_no_accuracy(tmp_path: Path) -> None:
    sets = ["run.patience=3", "run.metrics=[]", "method.lr=1e-30"]
    ended = fedquilt.run(TABLES, sets, out=tmp_path / "run")
    assert len(ended.result.history) < 12
