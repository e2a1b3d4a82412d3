"""Sweeps: trials several at once, each with the bits of a run alone, kept, resumed, or run again where that is due."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from warm_process import WarmProcess

import fedquilt
from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.sweeping import jobs, local
from fedquilt.experiment.sweeping.conduct import conduct
from fedquilt.experiment.sweeping.sources import ListedTrials

DIGITS: dict[str, Any] = {
    "run": {"rounds": 3},
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.5},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "fraction": 0.5},
}
RATES = DIGITS | {"grid": {"method.lr": [0.1, 0.5]}, "repeat": {"run.seed": [1, 2]}}


@pytest.fixture
def as_for_users(quick_sweeps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the process that trials come from as a sweep does."""
    monkeypatch.setattr(local, "subprocess", subprocess)


def digests(folder: Path, names: list[str]) -> list[str]:
    return [fedquilt.summary(folder / name)["digest"] for name in names]


def alone(folder: Path, *changes: str) -> str:
    """Run the trial with the rate 0.1 by itself, and return its digest."""
    return fedquilt.run(DIGITS, ["method.lr=0.1", *changes], out=folder).result.digest


class Nowhere:
    """An executor that may start nothing."""

    def start(self, order: Any) -> None:
        raise AssertionError(f"{order.name} was to be started")


class StartedError(Exception):
    """Says that a trial was started."""


class Recorder:
    """An executor that keeps the first order, and goes no further."""

    def __init__(self) -> None:
        self.spec = ""

    def start(self, order: Any) -> None:
        self.spec = order.spec
        raise StartedError

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("asked", "workers"), [(1, 4), (2, 2), (4, 1), (None, 1)])
def test_trials_share_the_cores(
    asked: int | None, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "cores", lambda: 4)
    recorder = Recorder()
    with pytest.raises(StartedError):
        conduct(ListedTrials(fedquilt.experiment(RATES), tmp_path), tmp_path, asked, executor=recorder)  # type: ignore[arg-type]
    assert f"workers = {workers}\n" in recorder.spec


def test_trials_have_the_bits_of_runs_alone_and_are_kept(tmp_path: Path, as_for_users: None) -> None:
    out = tmp_path / "rates"
    done = fedquilt.sweep(RATES, out=out, jobs=2)
    names = ["lr=0.1,seed=1", "lr=0.1,seed=2", "lr=0.5,seed=1", "lr=0.5,seed=2"]
    assert [(row.name, row.state, row.round) for row in done.trials] == [(name, "finished", 3) for name in names]
    assert not done.interrupted
    assert [cell.key for cell in done.cells] == [("0.1",), ("0.5",)]
    assert digests(out, names[:2]) == [
        alone(tmp_path / "first", "run.seed=1"),
        alone(tmp_path / "second", "run.seed=2"),
    ]
    log = (out / names[0] / "log.txt").read_text()
    assert "lr=0.1,seed=1: begins, 3 rounds in all" in log
    assert "round 3/3  accuracy" in log
    again = conduct(ListedTrials(fedquilt.experiment(out / "experiment.toml"), out), out, executor=Nowhere())  # type: ignore[arg-type]
    assert [(row.state, row.kept) for row in again.rows] == [("finished", True)] * 4
    # What goes on with the same bits goes on; what would have other bits is run again, and the old one is kept.
    metrics = (out / names[0] / "metrics.jsonl").read_text()
    longer = fedquilt.sweep(RATES, ["run.rounds=5"], out=out)
    assert [row.round for row in longer.trials] == [5] * 4
    assert (out / names[0] / "metrics.jsonl").read_text().startswith(metrics)
    whole = alone(tmp_path / "whole", "run.seed=1", "run.rounds=5")
    assert digests(out, names[:1]) == [whole]
    with pytest.warns(
        RuntimeWarning, match=r"1 trial of .* is run again, .*\[method\] momentum was 0\.0, and is 0\.5 now"
    ):
        other = fedquilt.sweep(
            RATES | {"repeat": {"run.seed": [1]}},
            ["grid.method.lr=[0.1]", "run.rounds=5", "method.momentum=0.5"],
            out=out,
        )
    assert other.trials[0].state == "finished"
    assert digests(out, names[:1]) != [whole]
    assert digests(out / "set_aside", names[:1]) == [whole]


OWN = """
import os
from torch import nn

def breaks(): raise ValueError("no such layer")
def dies(): os.kill(os.getpid(), 9)

class Works(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1))
"""


def test_one_that_fails_dies_or_diverges_is_marked_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "own_models.py").write_text(OWN)
    cases = {
        "breaks": {"model": {"name": "own_models:breaks"}},
        "dies": {"model": {"name": "own_models:dies"}},
        "diverges": {"method": {"lr": 1e30}},
        "works": {"model": {"name": "own_models:Works"}},
    }
    tables = DIGITS | {"run": {"rounds": 3, "import_from": str(tmp_path)}, "case": {"model": cases}}
    out = tmp_path / "runs"
    done = fedquilt.sweep(tables, out=out, jobs=2)
    rows = {row.name: row for row in done.trials}
    assert {name: row.state for name, row in rows.items()} == {
        "breaks": "failed", "dies": "failed", "diverges": "diverged", "works": "finished"
    }  # fmt: skip
    assert "no such layer" in str(rows["breaks"].reason)
    assert rows["dies"].reason == "its process was killed (SIGKILL): the machine may have run out of memory"
    assert "not a finite number" in str(rows["diverges"].reason) or "NaN" in str(rows["diverges"].reason)
    assert "no such layer" in (out / "breaks" / "log.txt").read_text()
    problems = {cell.key[0]: cell.problem for cell in done.cells}
    assert "no such layer" in str(problems["breaks"])
    assert "SIGKILL" in str(problems["dies"])
    assert problems["works"] is None
    # Code of one's own counts as what decides the bits; failed trials are tried again.
    digest = digests(out, ["works"])
    (tmp_path / "own_models.py").write_text(OWN.replace("x.flatten(1)", "2 * x.flatten(1)"))
    again = fedquilt.sweep(tables, out=out, only=["breaks", "works"])
    assert [row.state for row in again.trials] == ["failed", "finished"]
    assert not again.trials[1].kept
    assert digests(out / "set_aside", ["works"]) == digest
    with fedquilt.no_import(), pytest.raises(FedquiltError, match="--no-import refuses"):
        fedquilt.sweep(tables, out=out)


CRASHES = """
import os
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        if self.training and int(x.sum()) % 20 == 7:
            os._exit(7)
        return self.layer(x.flatten(1))
"""


def test_a_client_that_ends_its_process_costs_that_client_alone(tmp_path: Path) -> None:
    """The worker of a trial is its own process; what kills that is found by a worker apart, as in a run alone."""
    (tmp_path / "crashing.py").write_text(CRASHES)
    tables = DIGITS | {"run": {"rounds": 2, "import_from": str(tmp_path)}, "model": {"name": "crashing:Net"}}
    done = fedquilt.sweep(tables | {"grid": {"method.lr": [0.1, 0.2]}}, out=tmp_path / "runs", jobs=2)
    assert [row.state for row in done.trials] == ["finished"] * 2
    with pytest.warns(RuntimeWarning, match="died"):
        fedquilt.run(tables, ["method.lr=0.1", "engine.workers=1"], out=tmp_path / "alone")
    about, expected = (fedquilt.summary(tmp_path / each) for each in ("runs/lr=0.1", "alone"))
    assert about["left_out"]["kinds"] == expected["left_out"]["kinds"]
    assert about["left_out"]["kinds"]["died"] > 0
    assert about["digest"] == expected["digest"]


def test_out_of_time_and_back(tmp_path: Path) -> None:
    long = RATES | {"run": {"rounds": 100_000, "checkpoint_seconds": 60}}
    rounds = [0, 0]
    for _ in range(30):  # on a busy machine, the time may be over before a round is
        stopped = fedquilt.sweep(long, out=tmp_path / "runs", jobs=2, budget_seconds=2)
        assert stopped.out_of_time
        assert [row.state for row in stopped.trials] == ["interrupted", "interrupted", "waiting", "waiting"]
        saved = [
            fedquilt.summary(tmp_path / "runs" / row.name)["saved_round"] for row in stopped.trials[:2] if row.round
        ]
        assert saved == [row.round for row in stopped.trials[:2] if row.round], "what was done is saved"
        if min(rounds) > 0:
            break
        rounds = [max(before, row.round) for before, row in zip(rounds, stopped.trials, strict=False)]
    assert all(row.round >= before for before, row in zip(rounds, stopped.trials, strict=False)), "and gone on with"


def test_a_single_run_is_no_folder_for_trials(tmp_path: Path) -> None:
    fedquilt.run(DIGITS, ["engine.name=inline", "run.rounds=1"], out=tmp_path)
    with pytest.raises(RunError, match="holds a single run; choose another folder"):
        fedquilt.sweep(RATES, out=tmp_path)


def test_two_sweeps_of_one_folder(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked(), pytest.raises(RunError, match="another process is using this"):
        fedquilt.sweep(RATES, out=tmp_path)


def test_the_process_that_trials_come_from_may_die(tmp_path: Path, as_for_users: None) -> None:
    """Trials notice it, and are gone on with from another one."""
    killed: list[Any] = []

    class Killing:
        def show(self, board: Any) -> None:
            if not killed and any(row.round >= 2 for row in board.rows):
                # A browser of other tests may be one of the children, or one that has ended.
                children = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
                killed.extend(child for child in children if "launcher" in " ".join(child.cmdline()))
                killed[0].kill()

        def close(self) -> None: ...

    tables = RATES | {"run": {"rounds": 40, "checkpoint_seconds": 0}}
    done = fedquilt.sweep(tables, out=tmp_path / "runs", jobs=2, watcher=Killing())
    assert len(killed) == 1
    assert [row.state for row in done.trials] == ["finished"] * 4
    whole = alone(tmp_path / "whole", "run.seed=1", "run.rounds=40")
    assert digests(tmp_path / "runs", ["lr=0.1,seed=1"]) == [whole]


EXPERIMENT = """
[run]
rounds = 60
[data]
name = "digits"
[partition]
name = "iid"
clients = 20
[model]
name = "softmax_regression"
[method]
name = "fed_avg"
fraction = 0.5
[grid]
"method.lr" = [0.05, 0.1]
[repeat]
"run.seed" = [1, 2]
"""


def test_ctrl_c_saves_says_how_to_go_on_and_leaves_no_process(tmp_path: Path, warm_process: WarmProcess) -> None:
    (tmp_path / "rates.toml").write_text(EXPERIMENT.replace("rounds = 60", "rounds = 100000"))
    process = warm_process.start("sweep", "rates.toml", "--jobs", "2", "--set", "method.batch=inf", folder=tmp_path)
    folders = [tmp_path / "runs" / "rates" / f"lr=0.05,seed={seed}" for seed in (1, 2)]
    deadline = time.monotonic() + 60
    while not all((each / "metrics.jsonl").exists() and (each / "metrics.jsonl").stat().st_size for each in folders):
        assert time.monotonic() < deadline, process.poll()
        time.sleep(0.05)
    below = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: all processes of the group get it
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    again = "Interrupted. Continue with: fedquilt sweep rates.toml --jobs 2 --set method.batch=inf\n"
    assert out.endswith(again)
    assert "Traceback" not in err
    assert len(below) >= 3
    assert psutil.wait_procs(below, timeout=10)[1] == []
    for folder in folders:
        about = fedquilt.summary(folder)
        assert about["state"] == "interrupted"
        assert about["saved_round"] == about["round"] > 0


@pytest.mark.timeout(300)  # it starts processes one after the other: minutes on a busy machine
def test_a_few_kills_of_everything(bench: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """`python bench/sweep_kills.py` does twenty; this is the same program, with processes that start at once."""
    bench("sweep_kills", "--kills", "2")
    assert "all trials are those of runs alone" in capsys.readouterr().out


def test_a_sweep_from_another_thread(tmp_path: Path) -> None:
    """Signals can be taken over in the main thread only; a notebook's cell may be in another."""
    done: list[Any] = []
    tables = RATES | {"repeat": {"run.seed": [1]}, "engine": {"name": "inline"}}
    with warnings.catch_warnings():
        thread = threading.Thread(target=lambda: done.append(fedquilt.sweep(tables, out=tmp_path / "runs")))
        thread.start()
        thread.join()
    assert [row.state for row in done[0].trials] == ["finished"] * 2


@pytest.mark.thorough  # each of its trials imports PyTorch
def test_where_processes_cannot_be_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_for_users: None) -> None:
    def unforked(main: str) -> list[str]:
        start = (
            "import sys; sys.path[:] = {!r}; "
            "from fedquilt.experiment.sweeping import launcher; launcher.FORKS = False; "
        )
        return [sys.executable, "-c", f"{start.format(sys.path)}launcher.{main}()"]

    monkeypatch.setattr(local, "command", unforked)
    done = fedquilt.sweep(RATES | {"repeat": {"run.seed": [1]}}, out=tmp_path / "runs", jobs=2)
    assert [row.state for row in done.trials] == ["finished"] * 2
    assert digests(tmp_path / "runs", ["lr=0.1,seed=1"]) == [alone(tmp_path / "alone", "run.seed=1")]
