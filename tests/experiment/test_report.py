"""Reports that compare runs, and summaries of single ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt.analysis.curves import History, rounds_to
from fedquilt.base.errors import RunError, SpecError
from fedquilt.experiment import report as reporting
from fedquilt.experiment.page.curves import Line, figure_of_curves
from fedquilt.experiment.page.figure import Figure
from fedquilt.experiment.page.runs import HEADER
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
    assert [dict(zip(HEADER, row, strict=True)) for row in done.tables[0].rows] == [
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
    names = ["curves-test-accuracy", "curves-test-loss", "cost-mb-sent-up-and-down", "cost-seconds-of-training"]
    drawn = {f"figures/{name}.{kind}" for name in names for kind in ("svg", "pdf", "png")}
    texts = {"index.html", "tables/runs.md", "tables/runs.csv", "tables/runs.tex"}
    assert {str(file.relative_to(tmp_path / "report")) for file in done.files} == drawn | texts
    beginnings = {".svg": b"<svg", ".pdf": b"%PDF", ".png": b"\x89PNG\r\n\x1a\n"}
    for file in done.files[4:]:
        assert file.read_bytes().startswith(beginnings[file.suffix]), file
    assert done.page == tmp_path / "report" / "index.html"
    text = (tmp_path / "report" / "tables" / "runs.md").read_text(encoding="utf-8")
    row = "| momentum | fed_avg_m | dirichlet alpha=0.5 | 2 | interrupted | 80.00% | 60.00% | 80.00% | – | 1.5 |"
    assert row in text
    assert "fed\\_avg\\_m & dirichlet alpha=0.5" in (tmp_path / "report" / "tables" / "runs.tex").read_text(
        encoding="utf-8"
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no figures: they take longer than all the rest."""
    monkeypatch.setattr(Figure, "write", lambda *_: [])
    monkeypatch.setattr(reporting, "page", lambda *_: "")


@pytest.mark.usefixtures("quick")
def test_target_is_95_percent_of_the_best_unless_given(recorded: Callable[..., Path], tmp_path: Path) -> None:
    runs = [recorded("a", 0.2, 0.8), recorded("b", 0.4)]
    assert fedquilt.report(runs, tmp_path / "report").target == 0.76
    assert fedquilt.report(runs, tmp_path / "report", target=0.5).target == 0.5


@pytest.mark.usefixtures("quick")
def test_runs_of_one_name_are_told_apart(recorded: Callable[..., Path], tmp_path: Path) -> None:
    first, second = recorded("one/fed_avg", 0.2), recorded("two/fed_avg", 0.4)
    done = fedquilt.report([first, second, first], tmp_path / "report")
    names = ["one/fed_avg", "two/fed_avg"]
    assert [row[0] for row in done.tables[0].rows] == names, "and one that is named twice counts once"
    legend = done.parts[0].figures[0].specs()["test accuracy"]["usermeta"]["legend"]
    assert [entry["name"] for entry in legend["entries"]] == names


@pytest.mark.usefixtures("quick")
def test_a_folder_of_runs_stands_for_them_all(recorded: Callable[..., Path], tmp_path: Path) -> None:
    recorded("all/b", 0.4)
    recorded("all/a", 0.2)
    recorded("all/a/set_aside", 0.2)
    recorded("all/.hidden", 0.9)
    done = fedquilt.report(tmp_path / "all", tmp_path / "report")
    assert [row[0] for row in done.tables[0].rows] == ["a", "b"]


@pytest.mark.usefixtures("quick")
def test_damage_costs_a_row_and_not_the_page(recorded: Callable[..., Path], tmp_path: Path) -> None:
    good, torn, lost = recorded("good", 0.2, 0.4), recorded("torn", 0.6), recorded("lost", 0.8)
    (torn / "metrics.jsonl").write_bytes(b"\x00\xff not JSON\n")
    (lost / "spec.toml").write_text("[run\n")
    done = fedquilt.report([good, torn, lost], tmp_path / "report")
    rows = {row[0]: dict(zip(HEADER, row, strict=True)) for row in done.tables[0].rows}
    assert rows["good"]["last accuracy"] == "40.00%"
    assert rows["torn"]["last accuracy"] == "–"
    assert rows["lost"]["state"] == "cannot be read"
    assert any("torn/metrics.jsonl: line 1 is damaged" in text for text in done.damage)
    assert any("lost/spec.toml: is damaged" in text for text in done.damage)
    assert [line.name for line in done.parts[0].details] == ["good", "torn", "lost"]


@pytest.mark.parametrize("target", [0.0, 1.5, 97.0, -1.0, math.nan])
def test_impossible_target(recorded: Callable[..., Path], tmp_path: Path, target: float) -> None:
    with pytest.raises(SpecError, match=r"target: must be an accuracy above 0 and at most 1, such as 0\.97"):
        fedquilt.report([recorded("a", 0.2)], tmp_path / "report", target)


def _half_written(path: Path) -> None:
    path.mkdir()
    (path / "spec.toml").touch()


def _not_begun(path: Path) -> None:
    path.mkdir()
    tables = {"run": {"rounds": 1}, "data": {"name": "digits"}, "partition": {"name": "iid", "clients": 3}}
    tables |= {
        "model": {"name": "softmax_regression"},
        "method": {"name": "fed_avg"},
        "grid": {"method.lr": [0.1, 0.2]},
    }
    (path / "experiment.toml").write_text(fedquilt.experiment(tables).to_toml())


def _no_experiment(path: Path) -> None:
    path.mkdir()
    (path / "experiment.toml").write_text("[grid]\n")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no such folder"),
        (lambda path: path.mkdir(), "is empty; `fedquilt run SPEC --out {path}` makes a run there"),
        (lambda path: path.write_text("a"), "is a file; a report takes run folders, and folders of runs"),
        (
            lambda path: (path / "holiday").mkdir(parents=True),
            r"holds no run (there is no spec.toml in it or below it); ",
        ),
        (_half_written, "{path}/spec.toml: is damaged: it is empty. Restore an intact copy."),
        (_not_begun, "{path}: none of the experiment's 2 trials has begun; `fedquilt sweep "),
        (_no_experiment, "{path}: the experiment cannot be read: "),
    ],
)
def test_folders_that_are_no_runs(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(RunError) as error:
        fedquilt.report([path], tmp_path / "report")
    assert message.format(path=path) in str(error.value)
    assert str(error.value).count("\n") == 0, "one message"
    assert not (tmp_path / "report").exists()


# Summaries


def test_summary_counts_who_was_left_out(recorded: Callable[..., Path]) -> None:
    path = recorded("faulty", 0.2, 0.3)
    first, second = record(1, 0.2), record(2, 0.3)
    first["dropped"] = [{"client": k, "reason": f"sent {k}e9", "kind": "unusable update"} for k in (3, 4)]
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
    figure = figure_of_curves([Line("a", (history,)), Line("b", (History([]),))], target=0.5)
    assert [file.stat().st_size > 1000 for file in figure.write(tmp_path, ["png"])] == [True, True]
