"""Sweeps over grids of values, and reports that compare runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt.analysis.curves import History, rounds_to
from fedquilt.base.errors import RunError, SpecError
from fedquilt.experiment import plots
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.report import HEADER
from fedquilt.experiment.run import run
from fedquilt.experiment.sealed import sealed_json, sealed_text
from fedquilt.experiment.sweep import Point, Sweep

SPEC = """
[run]
rounds = 3
[data]
name = "digits"
[partition]
name = "iid"
clients = 5
[model]
name = "softmax_regression"
inputs = 64
[method]
name = "fed_avg"
fraction = 1.0
[engine]
name = "inline"
"""

GRID = """
[sweep]
"method.lr" = [0.001, 0.5]
"method.batch" = [10, inf]
[published]
target = 0.8
"Table 1" = 87
"""


@pytest.fixture(autouse=True)
def no_plots_of_single_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs do."""
    monkeypatch.setattr("fedquilt.experiment.run.draw_run", lambda *_: None)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(SPEC + GRID)
    return path


# Sweeps


def test_sweep_runs_every_point(spec: Path, tmp_path: Path) -> None:
    done = fedquilt.sweep(spec, out=tmp_path / "runs")
    names = ["lr=0.001,batch=10", "lr=0.001,batch=inf", "lr=0.5,batch=10", "lr=0.5,batch=inf"]
    assert [point.name for point in done.points] == names
    assert [point.values for point in done.points][3] == {"method.lr": 0.5, "method.batch": math.inf}
    assert all((tmp_path / "runs" / name / "metrics.jsonl").exists() for name in names)
    assert not done.interrupted
    assert done.winner is not None
    assert done.winner.name == "lr=0.5,batch=10"
    assert done.points[0].rounds_to_target is None


def test_point_equals_a_run_of_its_own(spec: Path, tmp_path: Path) -> None:
    fedquilt.sweep(spec, ["sweep.method.lr=[0.5]"], out=tmp_path / "runs")
    alone = tmp_path / "alone.toml"
    alone.write_text(SPEC)
    digest = run(alone, ["method.lr=0.5", "method.batch=10"], out=tmp_path / "alone").result.digest
    assert fedquilt.summary(tmp_path / "runs" / "lr=0.5,batch=10")["digest"] == digest


def test_results_are_json_that_every_reader_takes(spec: Path, tmp_path: Path) -> None:
    spec.write_text(spec.read_text() + "published_on = 2017-02-28\n")
    done = fedquilt.sweep(spec, out=tmp_path / "runs")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    results = json.loads(done.results.read_text(encoding="utf-8"), parse_constant=refuse)
    assert results["target"] == 0.8
    assert results["published"] == {"Table 1": 87, "published_on": "2017-02-28"}
    assert results["best"]["name"] == "lr=0.5,batch=10"
    assert results["best"]["rounds_to_target"] <= 3
    assert [point["values"]["method.batch"] for point in results["points"]] == [10, "inf", 10, "inf"]


def test_finished_points_are_kept_and_others_go_on(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "runs"
    first = fedquilt.sweep(spec, out=out)
    written = {point.name: (out / point.name / "metrics.jsonl").stat().st_mtime_ns for point in first.points}
    unfinished = out / first.points[1].name
    for path in RunFolder(unfinished).checkpoints:
        path.unlink()
    (unfinished / "metrics.jsonl").unlink()
    broadcast = []
    again = fedquilt.sweep(spec, out=out, announce=lambda *about: broadcast.append(about))
    assert broadcast == [(unfinished.name, 2, 4)]
    assert again.points == first.points
    for point in again.points:
        kept = (out / point.name / "metrics.jsonl").stat().st_mtime_ns == written[point.name]
        assert kept == (point.name != unfinished.name)


def test_interrupted_sweep_says_so_and_goes_on(spec: Path, tmp_path: Path) -> None:
    class Stop:
        """Presses Ctrl-C at the end of a point's second round."""

        def begin(self, history: History, last: int) -> None: ...

        def heard(self, clients: int, total: int) -> None: ...

        def round(self, record: dict[str, int]) -> None:
            if record["round"] == 2:
                raise KeyboardInterrupt

    out = tmp_path / "runs"
    stopped = fedquilt.sweep(spec, out=out, announce=lambda name, number, total: Stop() if number == 2 else None)
    assert stopped.interrupted
    assert [point.best is None for point in stopped.points] == [False, False, True, True]
    assert fedquilt.summary(out / stopped.points[1].name)["round"] == 2
    undisturbed = fedquilt.sweep(spec, out=tmp_path / "undisturbed")
    resumed = fedquilt.sweep(spec, out=out)
    assert not resumed.interrupted
    assert resumed.points == undisturbed.points


def test_runs_with_other_settings_are_not_taken_for_points(spec: Path, tmp_path: Path) -> None:
    fedquilt.sweep(spec, out=tmp_path / "runs")
    with pytest.raises(RunError, match=r"holds a run with other settings \(\[run\] rounds is 3 there, 4 in the spec\)"):
        fedquilt.sweep(spec, ["run.rounds=4"], out=tmp_path / "runs")
    with pytest.raises(RunError, match=r"\(\[method\] momentum is 0\.0 there, 0\.5 in the spec\)"):
        fedquilt.sweep(spec, ["method.momentum=0.5"], out=tmp_path / "runs")
    assert (
        len(fedquilt.sweep(spec, ["engine.name=processes", "run.checkpoint_seconds=1"], tmp_path / "runs").points) == 4
    )


def test_wrappers_are_settings_too(spec: Path, tmp_path: Path) -> None:
    spec.write_text(SPEC + "[[wrap]]\nname = 'fed_prox'\n" + GRID)
    before = fedquilt.sweep(spec, out=tmp_path / "runs")
    assert fedquilt.sweep(spec, out=tmp_path / "runs").points == before.points
    with pytest.raises(RunError, match=r"\(\[wrap 1\] mu is 0\.01 there, 0\.5 in the spec\)"):
        fedquilt.sweep(spec, ["wrap.1.mu=0.5"], out=tmp_path / "runs")
    spec.write_text(SPEC + GRID)
    with pytest.raises(RunError, match=r"\(\[wrap 1\] mu is 0\.01 there, None in the spec\)"):
        fedquilt.sweep(spec, out=tmp_path / "runs")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["engine.name=vectorised"], "where is 'cpu, float32' there, 'cpu, float32, blocks of 16' in the spec"),
        (["engine.precision=bf16"], "where is 'cpu, float32' there, 'cpu, bf16' in the spec"),
        (["engine.compute=compiled"], "compute is 'eager' there, 'compiled' in the spec"),
    ],
)
def test_points_that_another_engine_computed_with_other_bits_are_not_reused(
    spec: Path, tmp_path: Path, changes: list[str], message: str
) -> None:
    fedquilt.sweep(spec, out=tmp_path / "runs")
    with pytest.raises(RunError, match=rf"\(\[engine\] {message}\)"):
        fedquilt.sweep(spec, changes, out=tmp_path / "runs")


def test_a_finished_point_is_the_one_that_auto_would_compute(spec: Path, tmp_path: Path) -> None:
    """What "auto" decides for this spec is decided again: a point that was compiled by request is another one."""
    out, auto = tmp_path / "runs", ["engine.name=vectorised", "engine.block=2", "engine.compute=auto"]
    before = fedquilt.sweep(spec, auto, out=out)
    assert fedquilt.sweep(spec, auto, out=out).points == before.points
    for folder in out.glob("*/spec.toml"):
        text = folder.read_text().partition("# check")[0]
        folder.write_text(sealed_text(text.replace('compute = "eager"', 'compute = "compiled"')))
    with pytest.raises(RunError, match="compute is 'compiled' there, 'eager' in the spec"):
        fedquilt.sweep(spec, auto, out=out)


def point(name: str, best: float | None, crossed: float | None = None) -> Point:
    return Point(name, {}, best, crossed)


@pytest.mark.parametrize(
    ("points", "target", "winner"),
    [
        ([point("a", 0.5), point("b", 0.7), point("c", None)], None, "b"),
        ([point("a", 0.5), point("b", 0.5)], None, "a"),
        ([point("a", 0.9, 7.5), point("b", 0.8, 7.0), point("c", 0.95)], 0.8, "b"),
        ([point("a", 0.9), point("b", 0.8)], 0.95, "a"),  # the nearest
        ([point("a", None), Point("b", {}, None, None, 0.5), Point("c", {}, None, None, 0.25)], 0.95, "c"),
        ([Point("a", {}, 0.9, 3.0, diverged=True), point("b", 0.8)], 0.8, "b"),
        ([point("a", None)], None, None),
        ([], None, None),
    ],
)
def test_winner(points: list[Point], target: float | None, winner: str | None) -> None:
    chosen = Sweep(points, target, {}, Path(), interrupted=False).winner
    assert (chosen.name if chosen else None) == winner


def test_sweep_without_a_target_takes_the_most_accurate(spec: Path, tmp_path: Path) -> None:
    spec.write_text(SPEC + '[sweep]\n"method.lr" = [0.001, 0.5]\n')
    done = fedquilt.sweep(spec, out=tmp_path / "runs")
    assert done.target is None
    assert done.winner is not None
    assert done.winner.name == "lr=0.5"
    assert json.loads(done.results.read_text())["target"] is None


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
            "per client": "–",
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
            "per client": "–",
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
            "per client": "–",
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
    with pytest.raises(SpecError, match=r"target: must be an accuracy above 0 and at most 1, such as 0\.97"):
        fedquilt.report([recorded("a", 0.2)], tmp_path / "report", target)


def test_report_of_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no run \(there is no spec\.toml in it\)"):
        fedquilt.report([tmp_path], tmp_path / "report")
    assert not (tmp_path / "report").exists()


# Summaries


def test_summary_counts_who_was_left_out(recorded: Callable[..., Path]) -> None:
    path = recorded("faulty", 0.2, 0.3)
    first, second = record(1, 0.2), record(2, 0.3)
    first["dropped"] = [{"client": k, "kind": "unusable update", "reason": f"sent {k}e9"} for k in (3, 4)]
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
