"""`fedquilt show` of a folder of runs, and following one that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import SPEC, Command
from warm_process import WarmProcess

import fedquilt
from fedquilt.experiment import follow as following
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.follow import follow


def test_a_folder_of_runs_is_listed(command: Command) -> None:
    command("run", "spec.toml", "--out", "all/done")
    command("run", "spec.toml", "--out", "all/torn")
    Path("all/torn/spec.toml").write_text("[run")
    answer = command("show", "all")
    assert answer.code == 0
    lines = [line.split() for line in answer.out.splitlines()]
    accuracy = fedquilt.summary("all/done")["accuracy"]
    assert ["│", "done", "│", "finished", "│", "2/2", "│", f"{100 * accuracy:.2f}%", "│"] == next(
        line[:9] for line in lines if "done" in line
    )
    assert "2 runs: 1 finished, 1 unreadable" in answer.out
    assert "warning: all/torn/spec.toml: is damaged" in answer.err
    listed = json.loads(command("show", "all", "--json").out)
    assert [(run["name"], run["state"], run["round"]) for run in listed] == [
        ("done", "finished", 2),
        ("torn", "unreadable", 0),
    ]


def test_a_list_fits_into_80_columns(command: Command) -> None:
    command("run", "spec.toml", "--out", f"all/{'long-name-' * 12}")
    assert max(len(line) for line in command("show", "all").out.splitlines()) <= 80


def test_trials_that_have_not_begun_are_listed(command: Command) -> None:
    Path("grid.toml").write_text(SPEC + '[grid]\n"method.lr" = [0.1, 0.2]\n')
    fedquilt.sweep("grid.toml", out="grid")
    for path in sorted(Path("grid/lr=0.2").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    Path("grid/lr=0.2").rmdir()
    assert "2 runs: 1 finished, 1 waiting" in command("show", "grid").out


def test_what_cannot_be_followed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("run", "spec.toml", "--out", "all/a")
    command("run", "spec.toml", "--out", "all/b")
    answer = command("show", "all", "--follow")
    assert (answer.code, answer.err) == (
        2,
        "error: all: none of its runs is running: name one of them, such as a, b\n",
    )
    with RunFolder(Path("all/a")).locked(), RunFolder(Path("all/b")).locked(), monkeypatch.context() as patched:
        patched.setattr(following, "follow", lambda *_, **__: iter(()))
        assert command("show", "all", "--follow").out.startswith("Following all/a; also running: b\n")
    assert command("show", "all", "--diagnose").err == "error: all: holds 2 runs: name one of them to diagnose it\n"
    ended = command("show", "all/a", "--follow").out.splitlines()
    assert ended[0].startswith("round 1/2  accuracy ")
    assert ended[-1] == "all/a: finished"


@pytest.mark.timeout(120)
def test_a_run_is_followed_to_its_end(command: Command, tmp_path: Path, warm_process: WarmProcess) -> None:
    words = ["run", "spec.toml", "--out", "going", "--set", "run.rounds=60"]
    process = warm_process.start(*words, folder=tmp_path)
    while not RunFolder(Path("going")).running() or not Path("going/metrics.jsonl").exists():
        assert process.poll() is None, process.communicate()
    rounds = [record["round"] for record in follow(Path("going"))]
    process.communicate()
    assert rounds == list(range(1, 61))
    assert rounds == fedquilt.History(RunFolder(Path("going")).history().records).rounds


def test_following_ends_by_an_interrupt(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("run", "spec.toml", "--out", "a")

    def interrupted(path: Path, after: int) -> Iterator[dict[str, Any]]:
        yield from follow(path, after)
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "follow", interrupted)
    answer = command("show", "a", "--follow")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "No longer followed; the run continues.")
