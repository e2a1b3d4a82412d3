"""A run that is killed, or interrupted, ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

import fedquilt

LONG = """
[run]
rounds = 100000
checkpoint_seconds = 60

[data]
name = "digits"

[partition]
name = "iid"
clients = 20

[model]
name = "softmax_regression"
inputs = 64

[method]
name = "fed_avg"
fraction = 0.5
"""


def wait_for_rounds(folder: Path, rounds: int) -> None:
    deadline = time.monotonic() + 60
    metrics = folder / "metrics.jsonl"
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= rounds):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.timeout(300)  # it starts processes one after the other: minutes on a busy machine
def test_a_few_kills_of_the_whole_process_tree(bench, capsys):
    """`python bench/kills.py` does a hundred; this is the same program, with processes that start at once."""
    bench("kills", "--kills", "2")
    _, kills, digest = capsys.readouterr().out.splitlines()
    assert kills.startswith("2 kills, ")
    assert " is that of the undisturbed run" in digest


def test_ctrl_c_saves_says_how_to_resume_and_leaves_no_worker(tmp_path, warm_process):
    (tmp_path / "long.toml").write_text(LONG)
    process = warm_process.start("run", "long.toml", "--out", "stopped", folder=tmp_path)
    wait_for_rounds(tmp_path / "stopped", 6)
    workers = psutil.Process(process.pid).children()
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: all processes of the group get it
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "fedquilt resume stopped" in out
    assert "Traceback" not in err
    assert workers
    assert not any(worker.is_running() for worker in workers)
    state = fedquilt.summary(tmp_path / "stopped")
    assert state["state"] == "interrupted"
    assert state["saved_round"] == state["round"] > 5
    rounds = state["round"] + 5
    resumed = fedquilt.resume(tmp_path / "stopped", rounds=rounds)
    whole = fedquilt.run(tmp_path / "stopped" / "spec.toml", [f"run.rounds={rounds}"], out=tmp_path / "whole")
    assert resumed.result.digest == whole.result.digest
    assert len(resumed.result.history) == rounds


def test_workers_go_when_their_parent_is_killed(tmp_path, warm_process):
    (tmp_path / "long.toml").write_text(LONG)
    process = warm_process.start("run", "long.toml", "--out", "killed", folder=tmp_path)
    wait_for_rounds(tmp_path / "killed", 2)
    workers = psutil.Process(process.pid).children()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    gone, alive = psutil.wait_procs(workers, timeout=10)
    assert len(gone) == len(workers) >= 1
    assert alive == []
