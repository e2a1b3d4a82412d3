"""What was measured, a small file of JSON a workload, and what follows from it: medians, ratios, goals."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

Row = dict
"""What was measured of one program, or why it was skipped."""
Found = dict
"""What was measured of one workload ("rows"), of which commit, when, on what and how."""

OURS, DEFAULTS, PLAIN = "fedquilt", "fedquilt, defaults", "plain"


@dataclass(frozen=True)
class Goal:
    """How many times as fast as the plain loop, with the thread count that suits it better, and as the fastest peer."""

    plain: float
    peer: float


GOALS = {
    "w1": Goal(5, 3),
    "w2": Goal(2, 1.6),
    "w3": Goal(30, 5),
    "w4": Goal(2, 1.6),
    "w5": Goal(2.2, 1.6),
    "w6": Goal(35, 15),
    "w7": Goal(25, 5),
    "w8": Goal(1.5, 1.2),
    "w9": Goal(1.5, 1.2),
    "w10": Goal(1.5, 1.2),
}
SHARES = {"w1": 60, "w2": 80, "w4": 80, "w5": 80, "w6": 60, "w7": 60, "w8": 80, "w10": 60}
"""Per cent of its attainable speed that a round should reach."""
START_UP = 3.0
SOON = ("w1", "w3", "w6", "w7")
"""Seconds from nothing to the end of the first round that are the goal where nothing has to be compiled, and for what."""
MEMORY = {"w1": 500}
"""Megabytes that are the goal."""
MORE = 1.3
"""Times the memory of the same run computed eagerly that a run may take."""


def keep(workload: str, found: Found, folder: Path) -> None:
    """Write what was measured of a workload, a program a line."""
    rows = ",\n  ".join(json.dumps(row) for row in found["rows"])
    rest = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in found.items() if key != "rows")
    (folder / "results").mkdir(parents=True, exist_ok=True)
    (folder / "results" / f"{workload}.json").write_text(f'{{\n{rest} "rows": [\n  {rows}\n ]\n}}\n')


def kept(folder: Path) -> dict[str, Found]:
    """Read what was measured, by workload."""
    files = sorted((folder / "results").glob("w[0-9]*.json"), key=lambda file: int(file.stem[1:]))
    return {file.stem: json.loads(file.read_text()) for file in files}


LIMITS, PEAK_ROWS = "roofline.json", "memory.json"
"""What `bench/roofline.py` and memory.py found, a row a workload."""


def kept_rows(folder: Path, name: str) -> dict[str, Row]:
    """Read a file of rows, by workload."""
    file = folder / "results" / name
    return json.loads(file.read_text()) if file.exists() else {}


def keep_row(folder: Path, name: str, workload: str, row: Row) -> None:
    """Write a workload's row into a file of rows, in place of the one that was there, a row a line."""
    rows = kept_rows(folder, name) | {workload: row}
    ordered = sorted(rows, key=lambda each: int(each[1:]))
    lines = ",\n ".join(f"{json.dumps(each)}: {json.dumps(rows[each])}" for each in ordered)
    (folder / "results").mkdir(parents=True, exist_ok=True)
    (folder / "results" / name).write_text(f"{{\n {lines}\n}}\n")


def measured(found: Found) -> list[Row]:
    """Return the programs that were measured, the fastest first."""
    return sorted((row for row in found["rows"] if "rounds" in row), key=seconds)


def seconds(row: Row) -> float:
    """Return the median of a program's rounds."""
    return statistics.median(row["rounds"])


def ratio(row: Row, ours: Row) -> float:
    """Return how many times as long as ours a program takes: the median over turns."""
    return statistics.median(theirs / own for theirs, own in zip(row["rounds"], ours["rounds"], strict=True))


def of(found: Found, program: str) -> Row | None:
    """Return a program's row, if it was measured."""
    return next((row for row in measured(found) if row["program"] == program), None)


def ahead(found: Found, ours: Row, peers: bool) -> tuple[float, str] | None:
    """Return how many times as fast as the fastest plain loop, or peer, ours is, and which that is."""
    others = [row for row in measured(found) if not row["program"].startswith(OURS)]
    others = [row for row in others if row["program"].startswith(PLAIN) != peers]
    return min(((ratio(row, ours), row["program"]) for row in others), default=None)
