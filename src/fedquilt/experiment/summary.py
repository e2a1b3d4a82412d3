"""What a run folder says of its run, read from its files alone."""

from __future__ import annotations

import tomllib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from fedquilt.errors import RunError
from fedquilt.experiment.folder import RunFolder


def summary(path: str | Path) -> dict[str, Any]:
    """Describe a run: its state, rounds, accuracy, best, the digest of its model, and what was left out."""
    folder = RunFolder(Path(path))
    if not folder.spec.exists():
        raise RunError(f"{folder.path}: holds no run (there is no {folder.spec.name} in it)")
    spec = tomllib.loads(folder.spec.read_text(encoding="utf-8"))
    history = folder.history()
    options = spec.get("run", {})
    latest = folder.latest()
    best = history.best
    last = history.accuracy[-1] if history.accuracy else None
    complete = len(history) >= options.get("rounds", float("inf"))
    reached = last is not None and last >= options.get("stop_at", float("inf"))
    saved = 0 if latest is None else latest[0].round
    state = "running" if folder.running() else "finished" if complete or reached else "interrupted"
    if state == "finished" and saved < len(history):
        state = "interrupted"
    return {
        "run": str(folder.path),
        "state": state,
        "round": len(history),
        "rounds": options.get("rounds"),
        "saved_round": saved,
        "accuracy": last,
        "loss": history.loss[-1] if history.loss else None,
        "best": None if best is None else {"round": best[0], "accuracy": best[1]},
        "digest": None if latest is None else latest[2].get("model"),
        "left_out": _left_out(history.records),
        "seconds": round(sum(record["seconds"] for record in history), 1),
        "bytes_down": sum(record["bytes_down"] for record in history),
        "bytes_up": sum(record["bytes_up"] for record in history),
        "spec": spec,
    }


def _left_out(records: list[dict[str, Any]]) -> dict[str, Any]:
    dropped = [entry for record in records for entry in record["dropped"]]
    return {
        "clients": len(dropped),
        "reasons": dict(Counter(entry["reason"] for entry in dropped).most_common(10)),
        "rounds_without_update": sum(not record["applied"] for record in records),
    }


def quiet_summary(path: str | Path) -> dict[str, Any]:
    """Return the summary without a warning for a damaged checkpoint: `saved_round` tells what is good."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return summary(path)
