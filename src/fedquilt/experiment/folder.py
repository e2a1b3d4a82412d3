"""A run folder: resolved spec, environment, metrics, checkpoints.

spec.toml            the spec with every default filled in
environment.json     what it was run with
metrics.jsonl        one line per round
checkpoints/         the two newest states; with run.keep = "best", the best one too
partition.npz        who holds what
population.json      how skewed that is, and the classes of some clients, for tables and figures
clients.json         the accuracy of every client on its own test examples at the end, if it has any
error.txt            why the run could not continue, if it could not
set_aside/           files that had to make room: damaged ones, and those of a run that was begun again

Every file that is read again carries a check of its content; `contents.py` reads them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.algorithm.state import RunState
from fedquilt.analysis.curves import History
from fedquilt.base.errors import DataError, RunError
from fedquilt.compute.layout import Tensors
from fedquilt.experiment import checkpoint
from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.contents import (
    ASIDE,
    BEST,
    CHECKPOINTS,
    ENVIRONMENT,
    ERROR,
    GIVEN_UP,
    METRICS,
    NEWEST,
    PARTITION,
    POPULATION,
    SPEC,
    Contents,
    Saved,
    checkpoint_paths,
    read_best,
    read_contents,
    read_saved,
)
from fedquilt.experiment.holdings import holdings_of, read_holdings
from fedquilt.experiment.sealed import DamagedError, sealed_json, sealed_text, unsealed_text
from fedquilt.experiment.storage import FULL, READ_ONLY, storing
from fedquilt.partition.stored import describe_stored, to_bytes
from fedquilt.round.federation import Federation

KEPT = 2
"""Checkpoints kept: if the newest turns out damaged, the one before it serves."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def spec(self) -> Path:
        """The resolved spec."""
        return self.path / SPEC

    @property
    def metrics(self) -> Path:
        """One line of JSON a round."""
        return self.path / METRICS

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, the newest first."""
        return checkpoint_paths(self.path)

    @property
    def bests(self) -> list[Path]:
        """The best models that are kept, the newest first."""
        return checkpoint_paths(self.path, BEST)

    def best(self) -> Saved | None:
        """Read the best model of the run so far, if it is kept and good."""
        return read_best(self.path)

    def read(self) -> Contents:
        """Read and check all there is; what is damaged is named in `damage`."""
        return read_contents(self.path)

    def read_aloud(self) -> Contents:
        """Read all there is, and warn of what is damaged."""
        found = self.read()
        for text in found.damage:
            # One place for all who read: a command that reads a folder twice says it once.
            warnings.warn(text, RuntimeWarning, stacklevel=1)
        return found

    def history(self) -> History:
        """Read the records of the rounds so far; those that are damaged are left out, with a warning."""
        return self.read_aloud().history

    def saved(self) -> Saved | None:
        """Read the newest checkpoint that is good, whatever became of the other files."""
        return read_saved(self.path)

    def latest(self) -> tuple[RunState, dict[str, str]] | None:
        """Read the checkpoint to continue from."""
        found = self.read_aloud().saved
        return None if found is None else (found.run, found.about)

    def begin(self, spec: str, environment: dict[str, Any]) -> None:
        """Write what a new run starts from."""
        with storing(self.path):
            (self.path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            write_whole(self.path / ENVIRONMENT, sealed_json(environment, indent=2).encode())
            write_whole(self.spec, sealed_text(spec).encode())

    def describe(self, environment: dict[str, Any]) -> None:
        """Write what a run is made with."""
        with storing(self.path):
            write_whole(self.path / ENVIRONMENT, sealed_json(environment, indent=2).encode())

    def keep_partition(self, federation: Federation, made_by: dict[str, Any]) -> None:
        """Write, once, who held what before any of it was taken away; `made_by` is the table of a spec."""
        data = federation.data
        with storing(self.path):
            if not self._kept(PARTITION, describe_stored):
                content = to_bytes(federation.given, data.train.y.numpy(), made_by, len(data.test))
                write_whole(self.path / PARTITION, content)
            if not federation.algorithm.course.pooled and not self._kept(
                POPULATION, lambda path: read_holdings(path.read_bytes())
            ):
                write_whole(self.path / POPULATION, holdings_of(data, federation.partition).to_json().encode())

    def _kept(self, name: str, read: Callable[[Path], object]) -> bool:
        """Say whether a file is there and good; set it aside if it is damaged."""
        path = self.path / name
        if not path.exists():
            return False
        try:
            read(path)
        except (DataError, DamagedError):
            self.set_aside(path)
            return False
        return True

    def set_aside(self, path: Path) -> None:
        """Move a file into `set_aside/`, where nothing is read and nothing is overwritten."""
        with storing(self.path):
            aside = self.path / ASIDE
            aside.mkdir(exist_ok=True)
            names = (f"{path.name}{f'.{number}' if number else ''}" for number in range(10_000))
            path.rename(next(aside / name for name in names if not (aside / name).exists()))

    def abandon(self) -> None:
        """Remove what was written for a run that could not start."""
        with contextlib.suppress(OSError):  # on a read-only disk there is nothing to remove
            for name in (SPEC, ENVIRONMENT, PARTITION, POPULATION, ".lock"):
                (self.path / name).unlink(missing_ok=True)
            for folder in (self.path / CHECKPOINTS, self.path):
                if folder.exists() and not any(folder.iterdir()):
                    folder.rmdir()

    def fail(self, why: str) -> None:
        """Note why a run could not continue."""
        with contextlib.suppress(OSError):
            write_whole(self.path / ERROR, sealed_text(why).encode())

    def give_up(self, why: str) -> None:
        """Note why a run need not continue."""
        with contextlib.suppress(OSError):
            write_whole(self.path / GIVEN_UP, sealed_text(why).encode())

    def failure(self) -> str | None:
        """Return why a run could not go on, or could not even begin; None if nothing says so."""
        try:
            return unsealed_text((self.path / ERROR).read_bytes()).strip()
        except (OSError, DamagedError):
            return None

    def forgive(self) -> None:
        """Forget why a run could not, or need not, continue: it is tried again."""
        with storing(self.path):
            (self.path / ERROR).unlink(missing_ok=True)
            (self.path / GIVEN_UP).unlink(missing_ok=True)

    def save(self, run: RunState, about: dict[str, str], frozen: Tensors | None = None, kind: str = NEWEST) -> None:
        """Write a checkpoint and drop those before it that are no longer needed.

        Best models are kept as checkpoints are: for each of these there is then the one that was best at its round.
        """
        (self.path / CHECKPOINTS).mkdir(exist_ok=True)  # not its parents: a run folder that is gone is not made again
        path = self.path / CHECKPOINTS / f"{kind}-{run.round:08d}.safetensors"
        checkpoint.save(path, run, about, frozen)
        found = checkpoint_paths(self.path, kind)
        for old in found[found.index(path) + KEPT :]:
            old.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running the same folder; the lock goes with the process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        except OSError as error:
            if error.errno in (*FULL, *READ_ONLY):
                with storing(self.path):
                    raise
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
    raise RunError(f"{path}: another process is using this run folder")


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

    def __init__(self, folder: RunFolder, records: list[dict[str, Any]], aside: bool = False) -> None:
        """Begin with these records; the file that is there is replaced, or set aside."""
        if aside and folder.metrics.exists() and folder.metrics.stat().st_size:
            folder.set_aside(folder.metrics)
        write_whole(folder.metrics, "".join(sealed_json(record) for record in records).encode())
        # Without a buffer: what a full disk did not take must not come up again when the file is closed.
        self._file = folder.metrics.open("ab", buffering=0)

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it reaches the system at once and the disk with `sync`. A record is written whole or not at all."""
        status = os.fstat(self._file.fileno())
        if not status.st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), METRICS)
        left = memoryview(sealed_json(record).encode())
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), status.st_size)
            raise

    def sync(self) -> None:
        """Make sure that what was appended is on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
