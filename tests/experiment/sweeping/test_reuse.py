"""Runs of other sweeps that are copied instead of run again, and those that must not be."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.base.errors import RunError
from fedquilt.experiment.folder import RunFolder

pytestmark = pytest.mark.usefixtures("quick_sweeps")

BASE: dict[str, Any] = {
    "run": {"rounds": 3, "seed": 1},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 10},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "lr": 0.1},
}
ONE = {"grid": {"method.lr": [0.1]}}
RATES = BASE | {"grid": {"method.lr": [0.1, 0.5]}}
MOMENTA = BASE | {"case": {"method": {"baseline": {}, "FedAvgM": {"method": {"name": "fed_avg_m"}}}}}


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    return fedquilt.sweep(RATES, out=tmp_path / "rates").folder


def with_run(tables: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return tables | {"run": {**tables["run"], **keys}}


def digest(folder: Path) -> str:
    return str(fedquilt.summary(folder)["digest"])


def test_a_baseline_that_two_tables_share_is_run_once(rates: Path, tmp_path: Path) -> None:
    done = fedquilt.sweep(MOMENTA, out=tmp_path / "momenta", reuse=[rates])
    assert done.reused == {"baseline": rates / "lr=0.1"}
    assert [(row.name, row.state, row.kept) for row in done.trials] == [
        ("baseline", "finished", True),
        ("FedAvgM", "finished", False),
    ]
    assert digest(done.folder / "baseline") == digest(rates / "lr=0.1") != digest(done.folder / "FedAvgM")
    assert f"copied from {rates / 'lr=0.1'}" in (done.folder / "baseline" / "log.txt").read_text(encoding="utf-8")
    assert [cell.value for cell in done.cells] == [row.accuracy for row in done.trials]


def test_the_folder_that_holds_several_sweeps_is_searched(rates: Path, tmp_path: Path) -> None:
    assert set(fedquilt.sweep(MOMENTA, out=tmp_path / "momenta", reuse=[tmp_path]).reused) == {"baseline"}


def test_a_shorter_run_is_continued_and_has_the_bits_of_one_that_was_not_interrupted(
    rates: Path, tmp_path: Path
) -> None:
    longer = with_run(BASE, rounds=5) | ONE
    copied = fedquilt.sweep(longer, out=tmp_path / "longer", reuse=[rates])
    alone = fedquilt.sweep(longer, out=tmp_path / "alone")
    assert set(copied.reused) == {"lr=0.1"}
    assert [row.round for row in copied.trials] == [5]
    assert digest(copied.folder / "lr=0.1") == digest(alone.folder / "lr=0.1")
    assert len(RunFolder(rates / "lr=0.1").history()) == 3  # what was copied is as it was


@pytest.mark.parametrize(
    "other",
    [
        with_run(BASE, seed=2),
        with_run(BASE, rounds=2),
        with_run(BASE, eval_every=3),
        BASE | {"method": {"name": "fed_avg", "lr": 0.1, "batch": 20}},
        BASE | {"partition": {"name": "iid", "clients": 10, "seed": 2}},
        BASE | {"wrap": [{"name": "fed_prox", "mu": 0.1}]},
        BASE | {"engine": {"name": "vectorised", "block": 5}},
    ],
)
def test_what_differs_in_its_result_is_run(other: dict[str, Any], rates: Path, tmp_path: Path) -> None:
    done = fedquilt.sweep(other | ONE, out=tmp_path / "other", reuse=[rates])
    assert not done.reused
    assert [(row.state, row.kept) for row in done.trials] == [("finished", False)]


def test_data_that_have_changed_are_noticed(tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    rows = [f"{n % 7},{n % 5},{n % 2}" for n in range(60)]
    table.write_text("\n".join(["age,dose,label", *rows]), encoding="utf-8")
    tables = BASE | {"data": {"name": "table", "path": str(table), "label": "label"}} | ONE
    first = fedquilt.sweep(tables, out=tmp_path / "first")
    assert fedquilt.sweep(tables, out=tmp_path / "second", reuse=[first.folder]).reused
    table.write_text("\n".join(["age,dose,label", *rows[:-2], "1,1,0", "6,4,1"]), encoding="utf-8")
    assert not fedquilt.sweep(tables, out=tmp_path / "third", reuse=[first.folder]).reused


def test_an_unfinished_or_damaged_run_is_not_copied(rates: Path, tmp_path: Path) -> None:
    for path in (rates / "lr=0.1" / "checkpoints").iterdir():
        path.unlink()
    (rates / "lr=0.5" / "spec.toml").write_text("rounds = ", encoding="utf-8")
    done = fedquilt.sweep(RATES, out=tmp_path / "again", reuse=[rates])
    assert not done.reused
    assert [row.state for row in done.trials] == ["finished", "finished"]


def test_a_run_that_is_going_on_is_not_copied(rates: Path, tmp_path: Path) -> None:
    with RunFolder(rates / "lr=0.1").locked():
        done = fedquilt.sweep(RATES, out=tmp_path / "again", reuse=[rates])
    assert set(done.reused) == {"lr=0.5"}


def test_what_a_sweep_has_already_stays(rates: Path, tmp_path: Path) -> None:
    own = fedquilt.sweep(RATES, out=tmp_path / "own").folder
    before = {
        path: path.stat().st_mtime_ns for path in own.rglob("*") if path.is_file() and path.name == "metrics.jsonl"
    }
    assert not fedquilt.sweep(RATES, out=own, reuse=[rates]).reused
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_what_a_crash_left_of_a_copy_is_replaced(rates: Path, tmp_path: Path) -> None:
    left = tmp_path / "again" / ".lr=0.1.part"
    left.mkdir(parents=True)
    shutil.copy(rates / "lr=0.1" / "spec.toml", left)
    done = fedquilt.sweep(RATES, out=tmp_path / "again", reuse=[rates])
    assert set(done.reused) == {"lr=0.1", "lr=0.5"}
    assert not left.exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere: no such folder"):
        fedquilt.sweep(RATES, out=tmp_path / "again", reuse=[tmp_path / "nowhere"])
    assert not (tmp_path / "again" / "lr=0.1").exists()
