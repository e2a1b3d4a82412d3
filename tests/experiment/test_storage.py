"""A disk that is full or read-only, and a folder that is gone: one message, and nothing is lost that was saved."""

from __future__ import annotations

import contextlib
import errno
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

import fedquilt
from fedquilt.base.errors import StorageError
from fedquilt.cli import app as cli
from fedquilt.experiment import checkpoint

SPEC = """
[run]
rounds = 6
checkpoint_seconds = 0
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
name = "inline"
"""


class After(fedquilt.Watcher):
    """Does something after a round."""

    def __init__(self, last: int, do: Callable[[], object]) -> None:
        self.last, self.do = last, do

    def begin(self, history: object, last: int) -> None:
        pass

    def heard(self, clients: int, total: int) -> None:
        pass

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == self.last:
            self.do()


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def failing(monkeypatch: pytest.MonkeyPatch, number: int, below: Path) -> None:
    """Let every file below a folder that is opened for writing fail, as a read-only or full disk does."""
    real_open = Path.open

    def refuse(self: Path, mode: str = "r", *rest: Any, **more: Any) -> IO[Any]:
        if set(mode) & set("wax+") and self.is_relative_to(below):
            raise OSError(number, "refused", str(self))
        return real_open(self, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", refuse)


@pytest.mark.parametrize(
    ("number", "todo"),
    [(errno.ENOSPC, "Free some space"), (errno.EROFS, "Make it writable"), (errno.EIO, "Put that right")],
)
def test_a_folder_that_cannot_be_written_any_more(
    number: int, todo: str, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        watcher = After(3, lambda: failing(patch, number, folder))
        with pytest.raises(StorageError) as error:
            fedquilt.run(spec, out=folder, watcher=watcher)
    assert str(error.value) == (
        f"{folder}: cannot be written: refused. {todo}, then continue with `fedquilt resume {folder}`; "
        "what was saved before is intact"
    )
    about = fedquilt.summary(folder)
    assert (about["saved_round"], about["damage"]) == (3, [])
    whole = fedquilt.run(spec, out=tmp_path / "whole")
    assert fedquilt.resume(folder).result.digest == whole.result.digest


@contextlib.contextmanager
def small_files(size: int) -> Iterator[None]:
    """Let no file grow larger, as on a disk that is full in the middle of a line."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_record_that_does_not_fit_is_not_left_in_part(spec: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with contextlib.ExitStack() as stack:

        def fill() -> None:
            stack.enter_context(small_files((folder / "metrics.jsonl").stat().st_size + 100))

        with pytest.raises(StorageError, match=r"cannot be written: File too large\. Free some space"):
            fedquilt.run(spec, out=folder, watcher=After(2, fill))
    about = fedquilt.summary(folder)
    assert (about["round"], about["saved_round"], about["damage"]) == (2, 2, [])
    assert len(fedquilt.resume(folder).result.history) == 6


def test_a_checkpoint_that_does_not_fit_takes_no_room(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    checkpoint.write_whole(path, b"old")
    with small_files(1000), pytest.raises(OSError, match="File too large"):
        checkpoint.write_whole(path, bytes(2000))
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("one.safetensors", b"old")]


@pytest.mark.parametrize("seconds", [0, 1000], ids=["at the next checkpoint", "at the next record"])
def test_a_folder_that_is_removed_while_it_is_used(seconds: int, spec: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    watcher = After(3, lambda: shutil.rmtree(folder))
    with pytest.raises(
        StorageError, match="The folder is gone: if it was moved, put it back and continue with"
    ) as error:
        fedquilt.run(spec, [f"run.checkpoint_seconds={seconds}"], out=folder, watcher=watcher)
    assert "what was saved" not in str(error.value)
    assert not folder.exists()


def test_a_folder_that_is_moved_while_it_is_used_goes_on_where_it_is(spec: Path, tmp_path: Path) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"
    with pytest.raises(StorageError, match="The folder is gone"):
        fedquilt.run(spec, out=folder, watcher=After(3, lambda: folder.rename(moved)))
    assert len(fedquilt.resume(moved).result.history) == 6


def test_a_full_disk_exits_with_1(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` into it leaves nothing; `resume` and `report` say what to do."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    fedquilt.run(spec, out=tmp_path / "run")
    failing(monkeypatch, errno.ENOSPC, tmp_path)
    for words, ending in [
        (["run", str(spec), "--out", str(tmp_path / "new")], "Free some space, then try again\n"),
        (["resume", str(tmp_path / "run"), "--rounds", "8"], "what was saved before is intact\n"),
        (["report", str(tmp_path / "run"), "--out", str(tmp_path / "report")], "Free some space, then try again\n"),
    ]:
        monkeypatch.setattr(sys, "argv", ["fedquilt", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        err = capsys.readouterr().err
        assert (ended.value.code, err.count("\n")) == (1, 1), (words, err)
        assert err.endswith(ending), (words, err)
    monkeypatch.undo()
    assert not (tmp_path / "new" / "spec.toml").exists()
    assert fedquilt.summary(tmp_path / "run")["state"] == "finished"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount a small disk, where that is permitted."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(*options: str) -> Path:
        words = ["mount", *options, str(place)]
        if not shutil.which("mount") or subprocess.run(words, capture_output=True, check=False).returncode:
            pytest.skip("mounting is not permitted")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_real_disk_that_fills_up_and_turns_read_only(disk: Callable[..., Path], spec: Path, tmp_path: Path) -> None:
    place = disk("-t", "tmpfs", "-o", "size=60k", "tmpfs")
    with pytest.raises(StorageError, match=r"No space left on device\. Free some space, then continue with"):
        fedquilt.run(spec, ["run.rounds=100000"], out=place / "run")
    about = fedquilt.summary(place / "run")
    assert about["damage"] == []
    assert about["saved_round"] > 0
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    with pytest.raises(StorageError, match=r"Read-only file system\. Make it writable, then continue with"):
        fedquilt.resume(place / "run")
    assert fedquilt.summary(place / "run") == about
    subprocess.run(["mount", "-o", "remount,rw,size=2m", str(place)], check=True)
    rounds = about["round"] + 2
    whole = fedquilt.run(spec, [f"run.rounds={rounds}"], out=tmp_path / "whole")
    assert fedquilt.resume(place / "run", rounds).result.digest == whole.result.digest
