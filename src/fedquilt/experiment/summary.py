"""What a run folder says of its run, read from its files alone."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from fedquilt.analysis.curves import History
from fedquilt.analysis.standing import Standing, divergence
from fedquilt.base.text import visible
from fedquilt.experiment.contents import ERROR, GIVEN_UP, Contents, number_of
from fedquilt.experiment.folder import RunFolder


def summary(path: str | Path) -> dict[str, Any]:
    """Describe a run: its state, rounds, accuracy, best, the digest of its model, and what was left out.

    >>> import tempfile
    >>> from fedquilt import run
    >>> spec = {
    ...     "run": {"rounds": 2},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "iid", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg"},
    ...     "engine": {"name": "inline"},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ended = run(spec, out=folder)
    ...     about = summary(folder)
    >>> about["state"], about["round"], about["digest"] == ended.result.digest
    ('finished', 2, True)
    """
    folder = RunFolder(Path(path))
    return summarise(folder, folder.read_aloud())


def summarise(folder: RunFolder, found: Contents) -> dict[str, Any]:
    """Describe a run whose folder was read.

    What would need a record that is lost is not known, and None; `known` is then what the good records say of it.
    """
    spec, history, latest = found.tables, found.history, found.saved
    options = spec.get("run", {})
    newest = [] if found.lost_since(history.rounds[-1] if history.rounds else 0) else history.records
    last = history.accuracy[-1] if newest and history.accuracy else None
    rounds = options.get("rounds")
    if latest is not None and "last_round" in latest.about:  # a method that ends by itself, such as one_shot
        rounds = min(rounds or math.inf, int(latest.about["last_round"]))
    complete = found.round >= (rounds or math.inf)
    standing = Standing.of(history)
    if found.lost:  # the best rounds, and the time, are not all known
        standing = Standing(accuracy=last)
    limits = [options.get(key) for key in ("stop_at", "patience", "stop_after_seconds")]
    early = None if complete else standing.ending(*limits)
    saved = 0 if latest is None else latest.run.round
    diverged = None if found.lost else divergence(history, rounds)
    stopped = diverged is not None and options.get("on_divergence", "stop") == "stop"
    state = "running" if folder.running() else "finished" if complete or early or stopped else "interrupted"
    if state == "finished" and saved < found.round:
        state = "interrupted"
    if state == "interrupted" and (folder.path / ERROR).exists():
        state = "failed"
    if state == "interrupted" and (folder.path / GIVEN_UP).exists():
        state = "given up"
    if state == "finished" and diverged is not None:
        state = "diverged"
    about = {
        "run": str(folder.path),
        "state": state,
        "round": found.round,
        "rounds": rounds,
        "saved_round": saved,
        "accuracy": last,
        "loss": history.loss[-1] if newest and history.loss else None,
        "metrics": _newest(newest, "metrics") or {},
        "validation_accuracy": _newest(newest, "validation_accuracy"),
        "validation_loss": _newest(newest, "validation_loss"),
        "best": _best(history),
        "best_model": None if standing.best is None else standing.best._asdict(),
        "best_kept": _best_kept(folder),
        "stopped": early if state == "finished" else None,
        "good_checkpoint": latest is not None if latest is not None or found.unusable else None,
        "digest": None if latest is None else latest.about.get("model"),
        "diverged": diverged if state == "diverged" else None,
        "error": (found.error or "unknown: the file with this value is damaged") if state == "failed" else None,
        "per_client_accuracy": _newest(newest, "per_client_accuracy"),
        "per_client_accuracy_worst_tenth": _newest(newest, "per_client_accuracy_worst_tenth"),
        "per_client_accuracy_quantiles": _newest(newest, "per_client_accuracy_quantiles"),
        "groups": _newest(newest, "groups"),
        "absent": sum(len(record.get("absent", ())) for record in history),
        "simulated_seconds": _total(history.records, "simulated_seconds"),
        "left_out": _left_out(history.records),
        "seconds": round(sum(record["seconds"] for record in history), 1),
        "bytes_down": sum(record["bytes_down"] for record in history),
        "bytes_up": sum(record["bytes_up"] for record in history),
        "spec": spec,
        "lost_rounds": [[rounds.start, rounds.stop - 1] for rounds in found.lost],
        "damage": list(found.damage),
        "known": None,
    }
    if not found.lost:
        return about
    return about | _UNKNOWN | {"known": {"rounds": len(history)} | {key: about[key] for key in _UNKNOWN}}


_UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("absent", "simulated_seconds", "seconds", "bytes_down", "bytes_up")),
    "left_out": {"clients": None, "kinds": {}, "examples": {}, "rounds_without_update": None},
    "best": None,
    "best_model": None,
}
"""What is derived from all rounds, where the records of some are lost."""


def _best(history: History) -> dict[str, Any] | None:
    """Return the round of the best accuracy or, where that is not measured, of the lowest loss."""
    for name, found in (("accuracy", history.best), ("loss", history.lowest)):
        if found is not None:
            return {"round": found[0], name: found[1]}
    return None


def _best_kept(folder: RunFolder) -> int | None:
    """Return the round of the best model that is kept, if one is."""
    bests = folder.bests
    return number_of(bests[0]) if bests else None


def _newest(records: list[dict[str, Any]], key: str) -> Any:
    """Return a value of the last round that has it."""
    return next((record[key] for record in reversed(records) if record.get(key) is not None), None)


def _total(records: list[dict[str, Any]], key: str) -> float | None:
    known = [record[key] for record in records if key in record]
    return round(sum(known), 3) if known else None


def _left_out(records: list[dict[str, Any]]) -> dict[str, Any]:
    dropped = [entry for record in records for entry in record["dropped"]]
    return {
        "clients": len(dropped),
        "kinds": dict(Counter(entry.get("kind", "error") for entry in dropped).most_common()),
        "examples": {entry.get("kind", "error"): _example(entry) for entry in reversed(dropped)},
        "rounds_without_update": sum(not record["applied"] for record in records),
    }


def _example(entry: dict[str, Any]) -> str:
    return f"client {entry['client']}: {visible(entry['reason'])}"


def quiet_summary(path: str | Path) -> dict[str, Any]:
    """Return the summary without warnings of what is damaged: its `damage` has them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return summary(path)


def as_json(value: object) -> str:
    """Write JSON that every reader takes: infinity and NaN, which JSON lacks, as text, and dates too.

    >>> print(as_json({"batch": float("inf")}))
    {
      "batch": "inf"
    }
    """
    return json.dumps(_finite(value), indent=2, allow_nan=False, default=str)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
