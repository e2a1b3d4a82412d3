"""The files in experiments/: all can be read, and what stands in the READMEs is what the kept metrics give."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fedquilt as fq
from fedquilt.analysis.curves import History
from fedquilt.experiment.design.experiment import experiment
from fedquilt.experiment.environment import environment
from fedquilt.experiment.results.cells import cells_from, cells_of
from fedquilt.experiment.results.measured import measure
from fedquilt.experiment.results.outcome import outcome_of
from fedquilt.experiment.sweeping.check import refused

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
FILES = sorted(EXPERIMENTS.glob("*/*.toml"))
PAPERS = {
    "mcmahan-2017": {"table": 4, "figure": 10},
    "hsu-2019": {"figure": 6},
    "hsu-2020": {"table": 5, "figure": 10},
    "wei-2022": {"table": 3},
    "ozdayi-2020": {"table": 5},
}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("kept")


@pytest.fixture
def results(kept: Any) -> Any:
    return importlib.import_module("results")


def tables_of(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_every_table_and_figure_has_a_file() -> None:
    wanted = [
        EXPERIMENTS / paper / f"{kind}-{number}.toml"
        for paper, kinds in PAPERS.items()
        for kind, count in kinds.items()
        for number in range(1, count + 1)
    ]
    assert [path for path in [*wanted, EXPERIMENTS / "wei-2022" / "figure-2.toml"] if not path.exists()] == []


@pytest.mark.parametrize("paper", sorted({path.parent.name for path in FILES}))
def test_files_can_be_read_at_every_scale(paper: str) -> None:
    for path in sorted((EXPERIMENTS / paper).glob("*.toml")):
        tables = tables_of(path)
        for scale in ("full", *tables.get("scale", {})):
            repeats = tables.get("scale", {}).get(scale, {}).get("repeat", {}) or tables.get("repeat", {})
            # Thousands of trials differ in their seeds alone; a test of significance needs two.
            count = 2 if "significance" in tables else 1
            few = [f"repeat.{key}={values[:count]}" for key, values in repeats.items() if len(values) > count]
            read = experiment(path, few, scale=scale)
            assert read.trials, f"{path} {scale}"
            assert refused(read.trials) == {}


def test_no_two_cells_of_a_file_run_the_same(kept: Any) -> None:
    """A derived key replaces what a case says: cells could then have other names, and the same settings."""
    for path in FILES:
        found: dict[str, tuple[str, ...]] = {}
        repeats = tables_of(path).get("repeat", {})
        for trial in experiment(path, [f"repeat.{key}={values[:2]}" for key, values in repeats.items()]).trials:
            assert found.setdefault(kept.settings(trial), trial.cell) == trial.cell, f"{path}: {trial.name}"


def test_kept_settings_do_not_depend_on_where_the_clone_is(kept: Any, tmp_path: Path) -> None:
    """Weights to start from are named by their path, which the spec has in full."""
    found = set()
    for clone in ("one", "another"):
        folder = tmp_path / clone / "start"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").touch()
        shutil.copy(EXPERIMENTS / "hsu-2020" / "table-5-cifar.toml", folder.parent)
        read = experiment(folder.parent / "table-5-cifar.toml", scale="small")
        found.add(kept.settings_of_all(read))
        assert kept.settings(read.trials[0]) not in map(kept.settings, read.trials[1:])
    found.add(kept.settings_of_all(experiment(EXPERIMENTS / "hsu-2020" / "table-5-cifar.toml", scale="small")))
    assert len(found) == 1


def test_readmes_are_what_the_kept_metrics_give(results: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["results.py", "--check"])
    assert results.main() == 0, "run python tools/results.py --write"


def test_drawings_have_a_curve_for_every_cell_and_are_there(results: Any) -> None:
    drawn = [each for paper in results.PAPERS for file in results.files(paper) for each in results.measured(file)]
    figures = [(each, figure, path) for each in drawn for figure, path in zip(each.drawn, each.drawings, strict=True)]
    assert figures
    assert [path for _, _, path in figures if not path.exists()] == [], "run python tools/results.py --write"
    (table,) = [each for each in drawn if each.path.name == "table-1.jsonl" and "mcmahan" in str(each.path)]
    curves = [entry["name"] for figure in table.drawn for entry in legend(figure)]
    assert sorted(curves) == sorted(f"C = {cell.key[2]}" for cell in table.known) != []


def legend(figure: Any) -> list[dict[str, Any]]:
    (chart,) = figure.specs().values()
    return list(chart["usermeta"]["legend"]["entries"])


def test_kept_metrics_give_the_cells_of_the_runs(kept: Any, tmp_path: Path) -> None:
    tables = {
        "run": {"rounds": 4, "eval_every": 2},
        "data": {"name": "digits"},
        "partition": {"name": "shards", "clients": 10},
        "model": {"name": "softmax_regression"},
        "method": {"name": "fed_avg", "fraction": 0.5},
        "engine": {"name": "inline"},
        "grid": {"method.epochs": [1, 2]},
        "tune": {"by": "test", "method.lr": [0.01, 0.3]},
        "metric": [{"name": "at", "batches": 60}, {"name": "rounds_to", "target": 0.3}, {"name": "bytes"}],
    }
    read = experiment(tables)
    for trial in read.trials:
        fq.run(trial.spec, out=tmp_path / "sweep" / trial.name)
    path = tmp_path / "kept.jsonl"
    path.write_text("".join(kept.kept_lines(read, tmp_path / "sweep")), encoding="utf-8")
    kept_cells = cells_from(read, kept.read_kept(read, path))
    cells = cells_of(read, tmp_path / "sweep")
    assert [(cell.key, cell.chosen) for cell in kept_cells] == [(cell.key, cell.chosen) for cell in cells]
    assert [cell.value for cell in kept_cells] == pytest.approx([cell.value for cell in cells], rel=1e-7)
    digests = [json.loads(line)["model"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(set(digests)) == 4
    draw = partial(
        importlib.import_module("drawings").drawings, "figure-1", read, kept.read_kept(read, path), kept_cells
    )
    emds = {trial.name: 1.0 + (trial.cell == ("2",)) for trial in read.trials}
    curves, *maps = draw(dict.fromkeys(emds, 1.0))
    assert [entry["name"] for entry in legend(curves)] == ["epochs = 1", "epochs = 2"]
    assert [figure.name for figure in maps] == ["map-1"]
    assert [figure.name for figure in draw(emds)] == ["curves-1", "skew-1", "map-1"]
    changed = experiment(tables | {"run": {"rounds": 5, "eval_every": 2}})
    assert {outcome.state for outcome in kept.read_kept(changed, path)} == {"unusable"}
    assert list(kept.earlier_lines(read, path)) == [trial.name for trial in read.trials]
    assert kept.earlier_lines(changed, path) == {}


def test_kept_trials_run_again_have_the_kept_digests(kept: Any, tmp_path: Path) -> None:
    again = importlib.import_module("again")
    benchmark = EXPERIMENTS / "benchmark" / "results" / "synthetic.jsonl"
    ((fine, said),) = again.compared(benchmark, count=1, longest=1.0, seed=0)
    assert fine, said
    assert "; kept on" in said or said.endswith(": the same")

    (tmp_path / "results").mkdir()
    shutil.copy(EXPERIMENTS / "benchmark" / "synthetic.toml", tmp_path)
    (line,) = again.drawn(list(kept.read_lines(benchmark).values()), count=1, longest=1.0, seed=0)
    here = environment()
    line |= {key: here[key] for key in ("processor", "instruction_set")} | {"torch": here["packages"]["torch"]}
    other = tmp_path / "results" / "synthetic.jsonl"
    other.write_text(json.dumps(line | {"model": "0" * 64}), encoding="utf-8")
    ((fine, said),) = again.compared(other, count=1, longest=1.0, seed=0)
    assert not fine
    assert "differs: 000000000000… was kept" in said


@pytest.mark.parametrize("name", ["best", "last"])
def test_little_is_kept_of_values_that_were_not_chosen(kept: Any, tmp_path: Path, name: str) -> None:
    tables = {
        "run": {"rounds": 12, "validation": 0.2},
        "data": {"name": "digits"},
        "partition": {"name": "shards", "clients": 10},
        "model": {"name": "softmax_regression"},
        "method": {"name": "fed_avg", "fraction": 0.5},
        "engine": {"name": "inline"},
        "tune": {"by": "validation", "method.lr": [0.01, 0.1, 0.3]},
        "metric": {"name": name},
    }
    read = experiment(tables)
    for trial in read.trials:
        fq.run(trial.spec, out=tmp_path / "sweep" / trial.name)
    path = tmp_path / "kept.jsonl"
    path.write_text("".join(kept.kept_lines(read, tmp_path / "sweep")), encoding="utf-8")
    (kept_cell,), (cell,) = cells_from(read, kept.read_kept(read, path)), cells_of(read, tmp_path / "sweep")
    assert (kept_cell.chosen, kept_cell.value) == (cell.chosen, cell.value)
    lines, (shown,) = kept.read_lines(path), [trial.name for trial in cell.trials]
    assert {trial for trial, line in lines.items() if not line["reduced"]} == {shown}
    assert len(lines[shown]["rows"]) == 12
    assert all(1 <= len(line["rows"]) <= 3 for line in lines.values() if line["reduced"])
    for outcome in kept.read_kept(read, path):
        run = outcome_of(outcome.trial, tmp_path / "sweep").history
        for split in ("test", "validation"):
            assert measure(read.metric, outcome.history, None, split) == measure(read.metric, run, None, split)
    by_curve = experiment(tables | {"metric": {"name": "mean_of_last", "n": 3}})
    states = {outcome.trial.name: outcome.state for outcome in kept.read_kept(by_curve, path)}
    assert {trial for trial, state in states.items() if state == "finished"} == {shown}
    whole = list(kept.kept_lines(by_curve, tmp_path / "sweep"))
    assert [len(json.loads(line)["rows"]) for line in whole] == [12, 12, 12]
    shutil.rmtree(tmp_path / "sweep" / next(trial for trial in lines if trial != shown))
    assert [json.loads(line)["reduced"] for line in kept.kept_lines(read, tmp_path / "sweep")] == [False, False]


def test_the_best_evaluation_is_kept_wherever_it_is(kept: Any) -> None:
    rows = [(1, 0.5, 0.6), (2, 0.9, 0.7), (3, 0.8, 0.8), (4, 0.7, 0.1)]
    history = History([{"round": at, "accuracy": test, "validation_accuracy": held} for at, test, held in rows])
    assert kept._evaluated(history, lost=True) == {2, 3}
    assert kept._evaluated(history, lost=False) == {1, 2, 3, 4}


def test_wei_2022_runs_with_the_values_that_were_chosen(results: Any) -> None:
    folder = EXPERIMENTS / "wei-2022"
    (features,) = results.measured(folder / "features.toml")
    cases = tables_of(folder / "table-3.toml")["case"]["set"]
    columns = {True: "√(2/D)·cos", False: "√(2/D)·cos, inputs not scaled"}
    taken = {(name, columns[case["data"].get("scale", True)]) for name, case in cases.items()}
    rates = {cell.key[0]: cell.chosen["method.lr"] for cell in features.known if cell.key in taken}
    assert rates
    assert rates == {name: cases[name]["method"]["lr"] for name in rates}
    for file in ("table-1.toml", "table-2.toml", "penalties.toml", "clustering.toml", "oneshot.toml"):
        for name, case in tables_of(folder / file)["case"]["set"].items():
            if name in cases:
                assert (case["data"], case["method"]) == (cases[name]["data"], cases[name]["method"]), (file, name)
                own, theirs = case.get("values", {}), cases[name]["values"]
                assert own == {key: theirs[key] for key in own}, (file, name)
    (penalties,) = results.measured(folder / "penalties.toml")
    assert penalties.known
    for cell in penalties.known:
        ((_, chosen),) = cell.chosen.items()
        assert cases[cell.key[0]]["values"][cell.key[1]] == chosen, cell.key
