"""A run folder: resolved spec, environment, metrics, checkpoints.

spec.toml            the spec with every default filled in
environment.json     what it was run with
metrics.jsonl        one line a round
checkpoints/         the two newest states
partition.npz        who holds what
clients.json         how every client fares on its own test examples at the end, if it has any
error.txt            why the run could not go on, if it could not
*.png                plots, once the run has ended
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.federation import Federation
from fedquilt.core.params import Tensors
from fedquilt.core.state import RunState
from fedquilt.errors import RunError
from fedquilt.experiment import checkpoint
from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.toml import parse, read_text
from fedquilt.metrics.curves import History
from fedquilt.partition.stored import to_bytes
from fedquilt.progress import counted

KEYS = {"round", "accuracy", "loss", "dropped", "applied", "seconds", "bytes_down", "bytes_up"}
"""What every record has; a line without them is damaged."""

KEPT = 2
"""Checkpoints kept: if the newest turns out damaged, the one before it serves."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def spec(self) -> Path:
        """The resolved spec."""
        return self.path / "spec.toml"

    @property
    def metrics(self) -> Path:
        """One line of JSON a round."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, the newest first."""
        return sorted((self.path / "checkpoints").glob("round-*.safetensors"), reverse=True)

    def begin(self, spec: str, environment: dict[str, Any]) -> None:
        """Write what a new run starts from."""
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "environment.json", (json.dumps(environment, indent=2) + "\n").encode())
        write_whole(self.spec, spec.encode())

    def tables(self) -> dict[str, Any]:
        """Read the resolved spec."""
        if not self.spec.exists():
            raise RunError(f"{self.path}: holds no run (there is no {self.spec.name} in it)")
        try:
            return parse(read_text(self.spec))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise RunError(f"{self.spec}: is damaged: {error}") from None

    def keep_partition(self, federation: Federation, made_by: dict[str, Any]) -> None:
        """Write, once, who held what before any of it was taken away; `made_by` is the table of a spec."""
        path, data = self.path / "partition.npz", federation.data
        if not path.exists():
            write_whole(path, to_bytes(federation.given, data.train.y.numpy(), made_by, len(data.test)))

    def abandon(self) -> None:
        """Remove what `begin` wrote, for a run that could not start."""
        for name in ("spec.toml", "environment.json", ".lock"):
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.path / "checkpoints", self.path):
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()

    def fail(self, why: str) -> None:
        """Note why a run could not go on."""
        with contextlib.suppress(OSError):
            write_whole(self.path / "error.txt", (why + "\n").encode())

    def forgive(self) -> None:
        """Forget why a run could not go on: it is tried again."""
        (self.path / "error.txt").unlink(missing_ok=True)

    def error(self) -> str | None:
        """Return why the run could not go on, if so."""
        path = self.path / "error.txt"
        return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else None

    def history(self) -> History:
        """Read the records of the rounds so far; a line that a crash left unfinished ends the reading."""
        records: list[dict[str, Any]] = []
        if self.metrics.exists():
            for line in self.metrics.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError:
                    break
                if not isinstance(record, dict) or not record.keys() >= KEYS or record["round"] != len(records) + 1:
                    break
                records.append(record)
        return History(records)

    def save(self, run: RunState, about: dict[str, str], frozen: Tensors | None = None) -> None:
        """Write a checkpoint and drop those that are no longer needed."""
        checkpoint.save(self.path / "checkpoints" / f"round-{run.round:08d}.safetensors", run, about, frozen)
        for old in self.checkpoints[KEPT:]:
            old.unlink()

    def latest(self) -> tuple[RunState, dict[str, str]] | None:
        """Read the newest checkpoint that is whole and whose rounds are all in the metrics."""
        newest = self.newest()
        return None if newest is None else newest[1:]

    def newest(self) -> tuple[Path, RunState, dict[str, str]] | None:
        """Find and read that checkpoint."""
        recorded, found = len(self.history()), self.checkpoints
        for path in found:
            try:
                run, about = checkpoint.load(path)
            except RunError as error:
                warnings.warn(f"{error}; it is not used", RuntimeWarning, stacklevel=2)
                continue
            if run.round <= recorded:
                return path, run, about
            warnings.warn(
                f"{path}: is ahead of {self.metrics.name}, which has {counted(recorded, 'whole round')}; it is not used",
                RuntimeWarning,
                stacklevel=2,
            )
        if found:
            warnings.warn(f"{self.path}: no checkpoint can be used: starting again", RuntimeWarning, stacklevel=2)
        return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running the same folder; the lock goes with the process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        except OSError as error:
            raise RunError(f"{self.path}: cannot be used as a run folder: {error.strerror}") from None
        with file:
            _lock_soon(file.fileno(), self.path)
            yield

    def running(self) -> bool:
        """Say whether a process is at work on the folder."""
        lock = self.path / ".lock"
        if not lock.exists():
            return False
        with lock.open("r") as file:
            return not _lock(file.fileno(), alone=False)


def _lock_soon(descriptor: int, path: Path) -> None:
    # `running` takes the lock for a moment to see whether it is free: hence a few tries.
    for _ in range(20):
        if _lock(descriptor, alone=True):
            return
        time.sleep(0.05)
    raise RunError(f"{path}: another process is running this")


def _lock(descriptor: int, alone: bool) -> bool:
    try:
        import fcntl
    except ImportError:  # not there on Windows
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class MetricsWriter:
    """Appends records to metrics.jsonl, after cutting it back to the rounds that count."""

    def __init__(self, folder: RunFolder, keep: int) -> None:
        """Keep the first `keep` records."""
        records = folder.history().records[:keep]
        write_whole(folder.metrics, "".join(_line(record) for record in records).encode())
        self._file = folder.metrics.open("a", encoding="utf-8")

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it reaches the system at once and the disk with `sync`."""
        self._file.write(_line(record))
        self._file.flush()

    def sync(self) -> None:
        """Make sure that what was appended is on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"
