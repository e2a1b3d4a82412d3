"""A run that is killed, or interrupted, ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import fedquilt

ROOT = Path(__file__).parents[2]

LONG = """
[run]
rounds = 150
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
def test_a_few_kills_of_the_whole_process_tree():
    """`python bench/kills.py` does a hundred; this is the same program."""
    command = [sys.executable, str(ROOT / "bench" / "kills.py"), "--kills", "3"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert " is that of the undisturbed run" in answer.stdout
    assert answer.stdout.splitlines()[1].startswith("3 kills, ")


def test_ctrl_c_saves_says_how_to_resume_and_leaves_no_worker(tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    process = subprocess.Popen(
        [sys.executable, "-m", "fedquilt", "run", "long.toml", "--out", "stopped"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
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
    resumed = fedquilt.resume(tmp_path / "stopped")
    whole = fedquilt.run(tmp_path / "long.toml", out=tmp_path / "whole")
    assert resumed.result.digest == whole.result.digest
    assert len(resumed.result.history) == 150


def test_workers_go_when_their_parent_is_killed(tmp_path):
    (tmp_path / "long.toml").write_text(LONG.replace("rounds = 150", "rounds = 100000"))
    command = [sys.executable, "-m", "fedquilt", "run", "long.toml", "--out", "killed"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_rounds(tmp_path / "killed", 2)
    workers = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    gone, alive = psutil.wait_procs(workers, timeout=10)
    assert len(gone) == len(workers) >= 1
    assert alive == []
