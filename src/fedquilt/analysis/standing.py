"""Where a run stands: its best round so far, and whether it ends before its last one, by a rule or because it diverged.

All of it follows from the records of rounds alone, so that a resumed run, every engine, and whoever reads its folder decide
as the run itself did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fedquilt.analysis.curves import History
from fedquilt.base.text import counted, percent

ROUNDS = 3
"""Rounds in a row in which most updates cannot be used: a single bad round may pass."""

HINT = "Use a smaller learning rate (method.lr), or bound updates or models with the wrapper norm_bound or projected"

UNCHANGED = "changed nothing, since all of their clients were left out"


class BestRound(NamedTuple):
    """The round with the best model, the measure that it is best by, and its value."""

    round: int
    by: str
    value: float


WORDS = {
    "validation_accuracy": "validation accuracy",
    "validation_loss": "validation loss",
    "accuracy": "test accuracy",
    "loss": "test loss",
}


def judged(record: dict[str, Any]) -> BestRound | None:
    """Say how good a round's model is: by validation data if there are any, else by the test set; None if not evaluated.

    Accuracy counts, or, where it is not measured, the loss.

    >>> judged({"round": 3, "accuracy": 0.9, "loss": 0.1, "validation_accuracy": 0.8, "validation_loss": 0.2})
    BestRound(round=3, by='validation_accuracy', value=0.8)
    >>> judged({"round": 3, "accuracy": None, "loss": 0.5})
    BestRound(round=3, by='loss', value=0.5)
    """
    held_out = "validation_loss" in record
    for by in ("validation_accuracy", "validation_loss") if held_out else ("accuracy", "loss"):
        if record.get(by) is not None:
            return BestRound(record["round"], by, record[by])
    return None


@dataclass(frozen=True)
class Standing:
    """What decides whether a run ends early; kept up to date record by record, since a run may have many thousands."""

    best: BestRound | None = None
    seconds: float = 0.0
    newest: BestRound | None = None
    accuracy: float | None = None

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]]) -> Standing:
        """Return where a run stands after these records.

        >>> Standing.of([{"round": n, "accuracy": a, "seconds": 2.0} for n, a in ((1, 0.5), (2, 0.7), (3, 0.6))]).best
        BestRound(round=2, by='accuracy', value=0.7)
        """
        standing = cls()
        for record in records:
            standing = standing.after(record)
        return standing

    def after(self, record: dict[str, Any]) -> Standing:
        """Return where the run stands after one more record."""
        found = judged(record)
        return replace(
            self,
            best=found if found is not None and _better(found, self.best) else self.best,
            seconds=self.seconds + record["seconds"],
            newest=found,
            accuracy=record.get("accuracy"),
        )

    def ending(self, stop_at: float | None, patience: int | None, stop_after_seconds: float | None) -> str | None:
        """Say why a run ends after its newest round, though it is not the last, or return None.

        It ends after rounds that are evaluated only, so that the accuracy of its last model is known.

        >>> standing = Standing.of([{"round": n, "accuracy": a, "seconds": 2.0} for n, a in ((1, 0.7), (2, 0.6), (3, 0.6))])
        >>> standing.ending(stop_at=0.9, patience=2, stop_after_seconds=None)
        'test accuracy did not improve for 2 rounds after round 1'
        >>> standing.ending(stop_at=0.6, patience=None, stop_after_seconds=None)
        'test accuracy reached 60.00%'
        """
        if stop_at is not None and self.accuracy is not None and self.accuracy >= stop_at:
            return f"test accuracy reached {percent(stop_at)}"
        if self.newest is None:
            return None
        if patience is not None and self.best is not None and self.newest.round - self.best.round >= patience:
            since = counted(self.newest.round - self.best.round, "round")
            return f"{WORDS[self.best.by]} did not improve for {since} after round {self.best.round}"
        if stop_after_seconds is not None and self.seconds >= stop_after_seconds:
            return f"{stop_after_seconds:g} seconds had passed"
        return None


def _better(found: BestRound, best: BestRound | None) -> bool:
    """Say whether a round is better than the best before it; of equals, the first is the best."""
    if best is None:
        return True
    return found.value < best.value if found.by.endswith("loss") else found.value > best.value


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
    "most clients' updates in rounds 1 to 3 were unusable: NaN, infinite or too large"
    >>> divergence(History([{"round": 1} | good | {"not_finite": ["loss"]}]), last=10)
    'the test loss after round 1 is not finite'
    """
    records = history.records
    if not records:
        return None
    number = records[-1]["round"]
    for name in records[-1].get("not_finite", ()):
        words = {"loss": "test loss", "train_loss": "training loss", "validation_loss": "validation loss"}
        return f"the {words.get(name, name)} after round {number} is not finite"
    unusable = "were unusable: NaN, infinite or too large"
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
