"""Signals that end a run, one or several: what is done is saved, and the message tells the truth."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from warm_process import WarmProcess

import fedquilt
from fedquilt.base import interrupts
from fedquilt.experiment.folder import RunFolder

LONG = """
[run]
rounds = 1000000
checkpoint_seconds = 1000
[data]
name = "digits"
[partition]
name = "iid"
clients = 10
[model]
name = "softmax_regression"
inputs = 64
[method]
name = "fed_avg"
fraction = 0.3
[engine]
name = "{engine}"
"""

PAIRS = [
    ("inline", "SIGTERM", "SIGTERM", 0.0),
    ("inline", "SIGHUP", "SIGTERM", 0.002),
    ("inline", "SIGINT", "SIGHUP", 0.01),
    ("processes", "SIGTERM", "SIGTERM", 0.02),
    ("processes", "SIGINT", "SIGINT", 0.005),
    ("processes", "SIGHUP", "SIGHUP", 0.1),
]


@pytest.mark.parametrize(("engine", "first", "second", "seconds"), PAIRS)
def test_two_signals_within_milliseconds(
    engine: str, first: str, second: str, seconds: float, tmp_path: Path, warm_process: WarmProcess
) -> None:
    (tmp_path / "long.toml").write_text(LONG.format(engine=engine))
    metrics = tmp_path / "runs" / "long" / "metrics.jsonl"
    process = warm_process.start("run", "long.toml", folder=tmp_path)
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 3):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    for name in (first, second, first):  # to the whole group, as a terminal or a scheduler does
        os.killpg(process.pid, getattr(signal, name))
        time.sleep(seconds)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (130, False), err
    about = fedquilt.summary(metrics.parent)
    assert about["damage"] == []
    assert about["saved_round"] == about["round"] == metrics.read_bytes().count(b"\n") > 3
    assert re.search(r"Interrupted after round (\d+); nothing is lost", out).group(1) == str(about["round"])  # type: ignore[union-attr]


def test_what_was_told_to_ignore_a_lost_connection_goes_on(tmp_path: Path) -> None:
    """As under nohup."""
    spec = LONG.format(engine="inline").replace("1000000", "40")
    (tmp_path / "short.toml").write_text(spec)
    words = ["run", "short.toml"]
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from fedquilt.__main__ import main; main()"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, *words], cwd=tmp_path, **pipes) as process:  # type: ignore[call-overload]
        while not process.stdout.readline().startswith("short: begins"):
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert "Finished 40 rounds" in out


class Press:
    """Presses Ctrl-C many times while a round ends, and while what was done is saved."""

    def begin(self, history: object, last: int) -> None:
        pass

    def heard(self, clients: int, total: int) -> None:
        pass

    def round(self, record: dict[str, object]) -> None:
        if record["round"] == 3:
            for _ in range(20):
                signal.raise_signal(signal.SIGINT)


def test_ctrl_c_again_and_again_from_python(blobs, unbalanced, smooth, tmp_path, monkeypatch) -> None:
    from fedquilt.experiment.run_writer import RunWriter

    catch_up = RunWriter.catch_up

    def pressing(self: RunWriter) -> None:
        signal.raise_signal(signal.SIGINT)
        catch_up(self)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunWriter, "catch_up", pressing)
    options = {"engine": fedquilt.inline(), "out": tmp_path / "run", "watcher": Press(), "checkpoint_seconds": 1000.0}
    before = signal.getsignal(signal.SIGINT)
    ended = fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), 9, **options)
    assert signal.getsignal(signal.SIGINT) is before
    assert ended.interrupted
    about = fedquilt.summary(tmp_path / "run")
    assert about["saved_round"] == about["round"] == len(ended.history) == 3


def test_a_signal_waits_until_it_is_allowed() -> None:
    reached = []

    def signalled() -> str:
        signal.raise_signal(signal.SIGINT)
        return "to the end"

    with interrupts.taken(signal.SIGINT):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            reached.append("not here")
        interrupts.caught()
        with interrupts.allowed(), pytest.raises(KeyboardInterrupt), interrupts.held():
            reached.append(signalled())
    assert reached == ["to the end"]


def test_a_signal_between_loading_and_the_first_round_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from the command line, which takes signals from its start to its end."""
    keep = RunFolder.keep_partition

    def pressed(*arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)
        keep(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RunFolder, "keep_partition", pressed)
    tables = tomllib.loads(LONG.format(engine="inline")) | {"run": {"rounds": 3}}
    with interrupts.taken(signal.SIGINT):
        ended = fedquilt.run(tables, out=tmp_path / "run")
    assert (ended.result.interrupted, ended.result.run.round) == (True, 0)
    monkeypatch.setattr(RunFolder, "keep_partition", keep)
    assert fedquilt.resume(tmp_path / "run").result.run.round == 3


def test_a_second_signal_raises_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first one sets off may hang: then another one, seconds later, ends it."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with interrupts.taken(signal.SIGINT), interrupts.allowed():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        now[0] += interrupts.AGAIN
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
