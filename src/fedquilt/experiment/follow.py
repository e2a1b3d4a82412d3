"""Follows a run that another process is at work on: its records, as they are written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.records import read_record
from fedquilt.experiment.sealed import DamagedError

PAUSE = 0.25
"""Seconds between looks at the file."""


def follow(path: Path, after: int = 0) -> Iterator[dict[str, Any]]:
    """Iterate over the records of the rounds after a given one, and wait for more for as long as the run goes on.

    A record that is damaged is passed over: `fedquilt show` says what is wrong with it.
    """
    folder, offset, node = RunFolder(path), 0, None
    while True:
        going = folder.running()  # before the file is read: what a run writes last is not missed
        if folder.metrics.exists():
            with folder.metrics.open("rb") as file:
                status = folder.metrics.stat()
                if status.st_ino != node or status.st_size < offset:  # begun again, or cut back to a checkpoint
                    offset, node = 0, status.st_ino
                file.seek(offset)
                whole = file.read().rpartition(b"\n")[0]
            lines = whole.split(b"\n") if whole else []
            offset += len(whole) + bool(whole)
            for line in lines:
                try:
                    record = read_record(line + b"\n")
                except DamagedError:
                    continue
                if record["round"] > after:
                    after = record["round"]
                    yield record
        if not going:
            return
        time.sleep(PAUSE)
