"""When a run stops before its last round: at an accuracy, for lack of improvement, or at a budget of time.

The rules look at the records of rounds alone, as that of divergence does, so that a resumed run, and whoever reads its
folder, decides as the run itself did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.base.text import clock, counted, percent


def early_stop(records: Sequence[dict[str, Any]], options: Mapping[str, Any]) -> str | None:
    """Say why a run stops after the newest of its records, or return None if it goes on; `options` are its `[run]`.

    >>> records = [{"round": n, "accuracy": a, "seconds": 2.0} for n, a in [(1, 0.5), (2, 0.7), (3, 0.6), (4, 0.7)]]
    >>> early_stop(records, {"stop_at": 0.7})
    'the accuracy reached 70.00%'
    >>> early_stop(records, {"patience": 2}), early_stop(records, {"patience": 3})
    ('no round after round 2 was better, in 2 rounds', None)
    >>> early_stop(records, {"budget_seconds": 7.5})
    'the budget of 0:08 was used up'
    """
    if not records:
        return None
    accuracy, target = records[-1]["accuracy"], options.get("stop_at")
    if target is not None and accuracy is not None and accuracy >= target:
        return f"the accuracy reached {percent(target)}"
    patience, budget = options.get("patience"), options.get("budget_seconds")
    if patience is not None:
        best = _best(records)
        waited = 0 if best is None else records[-1]["round"] - best
        if waited >= patience:
            return f"no round after round {best} was better, in {counted(waited, 'round')}"
    if budget is not None and sum(record["seconds"] for record in records) >= budget:
        return f"the budget of {clock(budget)} was used up"
    return None


def _best(records: Sequence[dict[str, Any]]) -> int | None:
    """Return the best round: by validation accuracy where that is measured, or else by test accuracy, or by the loss."""
    for name, sign in (("validation_accuracy", 1), ("accuracy", 1), ("loss", -1)):
        known = [record for record in records if record.get(name) is not None]
        if known:
            return int(max(known, key=lambda record: sign * record[name])["round"])
    return None
