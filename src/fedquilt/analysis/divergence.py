"""Whether a run has diverged: its loss is no longer a finite number, or most of its clients' updates cannot be used.

The rule looks at the records of rounds alone, so that a resumed run and every engine decide as the run itself did.
"""

from __future__ import annotations

from typing import Any

from fedquilt.analysis.curves import History

ROUNDS = 3
"""Rounds in a row in which most updates cannot be used: a single bad round may pass."""

HINT = (
    "Take a smaller learning rate (method.lr), or keep updates and models within bounds with the wrapper norm_bound or "
    "projected"
)


UNCHANGED = "changed nothing, since all of their clients were left out"


def ending(why: str) -> str:
    """Say, in a sentence or two, that a run diverged or came to nothing, and what to do.

    >>> ending(f"12 of 12 rounds {UNCHANGED}: client 3: sent NaN")
    'the run failed: 12 of 12 rounds changed nothing, since all of their clients were left out: client 3: sent NaN.'
    """
    return f"the run failed: {why}." if UNCHANGED in why else f"the run diverged: {why}. {HINT}."


def divergence(history: History, last: int | None) -> str | None:
    """Say why a run has diverged by its newest round, of `last` in all, or return None if it has not.

    A run has diverged when its loss on test, training or validation data is measured and is not finite; when more than
    half of the clients of three rounds in a row sent updates that cannot be used (NaN, infinite or too large); or when,
    after the last round, that is so of more than half of all rounds, or more than half of all rounds changed nothing
    because all of their clients were left out, for whatever reason. Clients whose absence is simulated do not count.

    >>> lost = {"clients": [4], "dropped": [{"client": i, "kind": "overflow"} for i in range(9)]}
    >>> good = {"clients": [1, 2], "dropped": []}
    >>> print(divergence(History([{"round": 1} | lost, {"round": 2} | lost]), last=10))
    None
    >>> divergence(History([{"round": n} | lost for n in (1, 2, 3)]), last=10)
    "most clients' updates in rounds 1 to 3 were NaN, infinite or too large to use"
    >>> divergence(History([{"round": 1} | good | {"not_finite": ["loss"]}]), last=10)
    'the test loss after round 1 is not a finite number'
    """
    records = history.records
    if not records:
        return None
    number = records[-1]["round"]
    for name in records[-1].get("not_finite", ()):
        words = {"loss": "test loss", "train_loss": "training loss", "validation_loss": "validation loss"}
        return f"the {words.get(name, name)} after round {number} is not a finite number"
    unusable = "were NaN, infinite or too large to use"
    if len(records) >= ROUNDS and all(_lost(record) for record in records[-ROUNDS:]):
        return f"most clients' updates in rounds {number - ROUNDS + 1} to {number} {unusable}"
    if last is not None and number >= last:
        lost = sum(_lost(record) for record in records)
        if 2 * lost > len(records):
            return f"most clients' updates in {lost} of {len(records)} rounds {unusable}"
        unchanged = [record for record in records if record.get("dropped") and not record.get("applied", True)]
        if 2 * len(unchanged) > len(records):
            first = unchanged[0]["dropped"][0]
            why = f"client {first['client']}: {first['reason']}"
            return f"{len(unchanged)} of {len(records)} rounds {UNCHANGED}, as in round {unchanged[0]['round']} {why}"
    return None


def _lost(record: dict[str, Any]) -> bool:
    """Say whether more than half of the clients that took part in a round sent an update that cannot be used."""
    overflown: int = sum(entry.get("kind") == "overflow" for entry in record.get("dropped", ()))
    took_part = len(record.get("clients", ())) + len(record.get("dropped", ()))
    return 2 * overflown > took_part
