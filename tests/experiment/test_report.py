"""Reports that compare runs, and summaries of single ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt.analysis.curves import History, rounds_to
from fedquilt.base.errors import RunError, SpecError
from fedquilt.experiment import plots
from fedquilt.experiment.report import HEADER
from fedquilt.experiment.sealed import sealed_json, sealed_text

# Rounds to a target


@pytest.mark.parametrize(
    ("rounds", "accuracies", "target", "crossing"),
    [
        ([], [], 0.5, None),
        ([1], [0.4], 0.5, None),
        ([1], [0.5], 0.5, 1.0),
        ([5], [0.9], 0.5, 5.0),
        ([1, 2], [0.4, 0.5], 0.5, 2.0),
        ([1, 2], [0.25, 0.75], 0.5, 1.5),
        ([10, 20], [0.25, 0.75], 0.5, 15.0),
        ([1, 2, 3], [0.25, 0.25, 0.75], 0.5, 2.5),
        ([1, 2, 3], [0.5, 0.0, 1.0], 0.75, 2.5),
        ([1, 2, 3], [0.25, 0.75, 0.1], 0.5, 1.5),
        ([1, 2], [0.0, 1.0], 1.0, 2.0),
    ],
)
def test_rounds_to(rounds: list[int], accuracies: list[float], target: float, crossing: float | None) -> None:
    """The curve is made monotone first: a dip does not count, and the crossing lies on the line to the next best."""
    assert rounds_to(rounds, accuracies, target) == crossing
    records = [{"round": r, "accuracy": a} for r, a in zip(rounds, accuracies, strict=True)]
    assert History(records).rounds_to(target) == crossing


# Reports


def record(number: int, accuracy: float | None) -> dict[str, object]:
    loss = None if accuracy is None else 1 - accuracy
    return {
        "round": number,
        "accuracy": accuracy,
        "loss": loss,
        "dropped": [],
        "applied": True,
        "bytes_down": 500_000,
        "bytes_up": 250_000,
        "seconds": 0.5,
    }


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Path]:
    """Make a run folder from accuracies."""

    def make(
        name: str, *accuracies: float | None, spec: str = '[run]\nrounds = 4\n[method]\nname = "fed_avg"\n'
    ) -> Path:
        path = tmp_path / name
        (path / "checkpoints").mkdir(parents=True)
        (path / "spec.toml").write_text(sealed_text(spec))
        lines = [sealed_json(record(number, value)) for number, value in enumerate(accuracies, start=1)]
        (path / "metrics.jsonl").write_text("".join(lines))
        return path

    return make


def test_report_compares_runs(recorded: Callable[..., Path], tmp_path: Path) -> None:
    skewed = '[run]\nrounds = 4\n[method]\nname = "fed_avg_m"\n[partition]\nname = "dirichlet"\nalpha = 0.5\n'
    runs = [recorded("plain", 0.2, None, 0.4, 0.3), recorded("momentum", 0.4, 0.8, spec=skewed), recorded("begun")]
    done = fedquilt.report(runs, tmp_path / "report", target=0.6)
    assert [dict(zip(HEADER, row, strict=True)) for row in done.rows] == [
        {
            "run": "plain",
            "method": "fed_avg",
            "partition": "own",
            "rounds": "4",
            "last accuracy": "30.00%",
            "mean of last 10": "30.00%",
            "best accuracy": "40.00%",
            "own data": "–",
            "rounds to target": "not reached",
            "MB sent": "3.0",
            "last loss": "0.7000",
            "other metrics": "–",
            "state": "interrupted",
        },
        {
            "run": "momentum",
            "method": "fed_avg_m",
            "partition": "dirichlet alpha=0.5",
            "rounds": "2",
            "last accuracy": "80.00%",
            "mean of last 10": "60.00%",
            "best accuracy": "80.00%",
            "own data": "–",
            "rounds to target": "1.5",
            "MB sent": "1.5",
            "last loss": "0.2000",
            "other metrics": "–",
            "state": "interrupted",
        },
        {
            "run": "begun",
            "method": "fed_avg",
            "partition": "own",
            "rounds": "0",
            "last accuracy": "–",
            "mean of last 10": "–",
            "best accuracy": "–",
            "own data": "–",
            "rounds to target": "not reached",
            "MB sent": "0.0",
            "last loss": "–",
            "other metrics": "–",
            "state": "interrupted",
        },
    ]
    assert done.files == [tmp_path / "report" / "curves.png", tmp_path / "report" / "report.md"]
    assert done.files[0].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    text = done.files[1].read_text(encoding="utf-8")
    assert (
        "| momentum | fed_avg_m | dirichlet alpha=0.5 | 2 | interrupted | 80.00% | 60.00% | 80.00% | – | 1.5 |" in text
    )
    assert "Target accuracy: 60.00%." in text


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Draw nothing, but keep the names of the curves."""
    drawn: list[list[str]] = []
    monkeypatch.setattr("fedquilt.experiment.report.draw_curves", lambda path, curves, goal: drawn.append(list(curves)))
    return drawn


@pytest.mark.usefixtures("quick")
def test_target_is_95_percent_of_the_best_unless_given(recorded: Callable[..., Path], tmp_path: Path) -> None:
    runs = [recorded("a", 0.2, 0.8), recorded("b", 0.4)]
    assert fedquilt.report(runs, tmp_path / "report").target == 0.76
    assert fedquilt.report(runs, tmp_path / "report", target=0.5).target == 0.5


def test_runs_of_one_name_are_told_apart(recorded: Callable[..., Path], tmp_path: Path, quick: list[list[str]]) -> None:
    first, second = recorded("one/fed_avg", 0.2), recorded("two/fed_avg", 0.4)
    done = fedquilt.report([first, second, first], tmp_path / "report")
    assert [row[0] for row in done.rows] == [str(first), str(second)], "and one that is named twice counts once"
    assert quick == [[str(first), str(second)]]


@pytest.mark.parametrize("target", [0.0, 1.5, 97.0, -1.0, math.nan])
def test_impossible_target(recorded: Callable[..., Path], tmp_path: Path, target: float) -> None:
    with pytest.raises(SpecError, match=r"target: must be an accuracy above 0, at most 1, as in 0\.97"):
        fedquilt.report([recorded("a", 0.2)], tmp_path / "report", target)


def test_report_of_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no run \(there is no spec\.toml in it\)"):
        fedquilt.report([tmp_path], tmp_path / "report")
    assert not (tmp_path / "report").exists()


# Summaries


def test_summary_counts_who_was_left_out(recorded: Callable[..., Path]) -> None:
    path = recorded("faulty", 0.2, 0.3)
    first, second = record(1, 0.2), record(2, 0.3)
    unusable = {"kind": "unusable update"}
    first["dropped"] = [{"client": k, "reason": f"sent {k}e9"} | unusable for k in (3, 4)]
    second |= {"dropped": [{"client": 1, "kind": "error", "reason": "OSError: gone"}], "applied": False}
    (path / "metrics.jsonl").write_text(sealed_json(first) + sealed_json(second))
    about = fedquilt.summary(path)
    assert about["left_out"] == {
        "clients": 3,
        "kinds": {"unusable update": 2, "error": 1},
        "examples": {"unusable update": "client 3: sent 3e9", "error": "client 1: OSError: gone"},
        "rounds_without_update": 1,
    }
    assert (about["state"], about["round"], about["rounds"], about["digest"]) == ("interrupted", 2, 4, None)
    assert about["best"] == {"round": 2, "accuracy": 0.3}


def test_summary_of_a_damaged_spec(recorded: Callable[..., Path]) -> None:
    path = recorded("torn", 0.2, spec="[run]\nroun\n")
    with pytest.raises(RunError, match=r"torn/spec\.toml: is damaged, or was changed by hand: .*line 2"):
        fedquilt.summary(path)


def test_curves_are_drawn_on_a_wide_range_of_losses(tmp_path: Path) -> None:
    history = History([{"round": 1, "accuracy": 0.1, "loss": 1e6}, {"round": 2, "accuracy": 0.2, "loss": math.inf}])
    plots.draw_curves(tmp_path / "curves.png", {"a": history, "b": History([])}, target=0.5)
    assert (tmp_path / "curves.png").stat().st_size > 1000
