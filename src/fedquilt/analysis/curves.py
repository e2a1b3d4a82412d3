"""Learning curves, and rounds to a target accuracy as McMahan 2017 (§3) counts them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fedquilt.base.errors import FedquiltError, nearest, optional
from fedquilt.base.text import counted, html_table

EVALUATED = ("accuracy", "loss", "metrics")
"""What a record has, one or more, where the model was evaluated."""

MAIN = (
    "accuracy", "loss", "train_loss", "local_loss", "validation_accuracy", "validation_loss", "per_client_accuracy",
    "per_client_accuracy_worst_tenth", "conflict_rate",
)  # fmt: skip
"""What stands in a record by itself; other metrics are in its `metrics`."""

COUNTS = ("batches", "gradients", "steps", "examples", "bytes_down", "bytes_up", "seconds")
"""What a record counts, so that it adds up over rounds."""


@dataclass(frozen=True)
class History:
    """The records of a run's rounds, in order; `done` rounds are done at least, also where the last one's record is lost.

    `thinned` says that rounds were left out on purpose, and that a record has what was spent since the one before.

    >>> history = History([{"round": 1, "accuracy": 0.5}, {"round": 2, "accuracy": None}, {"round": 3, "accuracy": 0.7}])
    >>> history.rounds, history.accuracy, history.best
    ([1, 3], [0.5, 0.7], (3, 0.7))
    """

    records: list[dict[str, Any]]
    done: int = 0
    thinned: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.records)

    @property
    def last(self) -> int:
        """The last round that is done: as many as there are records, unless some are lost.

        >>> History([{"round": 1}, {"round": 3}]).last, History([{"round": 1}], done=2).last, History([]).last
        (3, 2, 0)
        """
        return max(self.records[-1]["round"] if self.records else 0, self.done)

    @property
    def whole(self) -> bool:
        """Whether no record is lost, so that what is derived from all of them is right."""
        return self.thinned or len(self.records) == self.last

    def _evaluated(self) -> list[dict[str, Any]]:
        return [record for record in self.records if any(record.get(key) is not None for key in EVALUATED)]

    @property
    def newest(self) -> dict[str, Any] | None:
        """The record of the last round after which the model was evaluated."""
        return next(reversed(self._evaluated()), None)

    @property
    def rounds(self) -> list[int]:
        """The rounds after which the model was evaluated."""
        return [record["round"] for record in self._evaluated()]

    @property
    def accuracy(self) -> list[float]:
        """Test accuracy after those rounds; nothing for a run that does not measure it."""
        return self.curve("accuracy")[1]

    @property
    def loss(self) -> list[float]:
        """Test loss after those rounds; NaN where it overflowed."""
        return [math.nan if record["loss"] is None else record["loss"] for record in self._evaluated()]

    @property
    def metrics(self) -> list[str]:
        """The names of the other metrics that were measured."""
        return list(dict.fromkeys(name for record in self._evaluated() for name in record.get("metrics", {})))

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """The rounds after which "accuracy", "loss" or another metric was measured and finite, and its values there.

        >>> History([{"round": 1, "loss": None, "accuracy": 0.5}, {"round": 2, "loss": 0.25}]).curve("loss")
        ([2], [0.25])
        """
        found = [(r["round"], (r if name in MAIN else r.get("metrics", {})).get(name)) for r in self._evaluated()]
        known = [(round_, value) for round_, value in found if value is not None]
        return [round_ for round_, _ in known], [value for _, value in known]

    def curve_along(self, count: str, name: str = "accuracy") -> tuple[list[float], list[float]]:
        """A curve over what was spent instead of rounds: over "batches", "gradients", or another count that adds up.

        >>> spent = [{"round": 1, "batches": 5}, {"round": 2, "batches": 8, "accuracy": 0.5}]
        >>> History(spent).curve_along("batches")
        ([13], [0.5])
        """
        rounds, values = self.curve(name)
        spent = dict(zip(*self.cumulative(count), strict=True))
        return [spent[round_] for round_ in rounds], values

    def cumulative(self, name: str) -> tuple[list[int], list[float]]:
        """All rounds, and the sum up to each of what is counted in every one.

        Names are those of a record that add up: "batches" (the largest number that any client of a round ran: a budget of
        time, Hsu 2020, Table 2), "gradients" (of single examples, by all clients: McMahan 2017, Figure 9), "steps",
        "examples", "bytes_down", "bytes_up", "seconds".

        >>> History([{"round": 1, "gradients": 600}, {"round": 2, "gradients": 400}]).cumulative("gradients")
        ([1, 2], [600, 1000])
        """
        if name not in COUNTS:
            raise FedquiltError(f"'{name}' is not counted in every round; {nearest(name, COUNTS)}")
        lacking = [record["round"] for record in self.records if name not in record]
        if lacking:
            raise FedquiltError(f"round {lacking[0]} has no count of {name}: an older version of fedquilt recorded it")
        return [record["round"] for record in self.records], list(accumulate(record[name] for record in self.records))

    @property
    def best(self) -> tuple[int, float] | None:
        """The round of the best test accuracy, the first of equals, and that accuracy."""
        pairs = list(zip(*self.curve("accuracy"), strict=True))
        return max(pairs, key=lambda pair: pair[1]) if pairs else None

    @property
    def lowest(self) -> tuple[int, float] | None:
        """The round of the lowest test loss, the first of equals, and that loss.

        >>> History([{"round": 1, "loss": 2.0}, {"round": 2, "loss": 0.5}, {"round": 3, "loss": None}]).lowest
        (2, 0.5)
        """
        pairs = list(zip(*self.curve("loss"), strict=True))
        return min(pairs, key=lambda pair: pair[1]) if pairs else None

    def to_pandas(self) -> Any:
        """Return the records as a pandas DataFrame, a row a round; other metrics have columns of their own.

        >>> history = History([{"round": 1, "accuracy": 0.5, "metrics": {"top5": 0.9}, "clients": [3]}])
        >>> frame = history.to_pandas()
        >>> frame.index.name, frame.columns.tolist(), float(frame.accuracy[1])
        ('round', ['accuracy', 'clients', 'top5'], 0.5)
        """
        pandas = optional("pandas", "to_pandas()", "pandas")
        rows = [
            {name: value for name, value in record.items() if name != "metrics"} | record.get("metrics", {})
            for record in self.records
        ]
        frame = pandas.DataFrame(rows, columns=None if rows else ["round"])
        return frame.set_index("round")

    def _repr_html_(self) -> str:
        """Show the newest evaluations as a table, in a notebook."""
        shown = self._evaluated()[-SHOWN:]
        names = [
            "round",
            *(name for name in MAIN if any(record.get(name) is not None for record in shown)),
            *self.metrics,
        ]
        rows = [[_cell({**record, **record.get("metrics", {})}.get(name)) for name in names] for record in shown]
        more = len(self._evaluated()) - len(shown)
        about = f"{counted(self.last, 'round')}{f', the last {len(shown)} evaluations' if more else ''}"
        return f"<div>{about}</div>{html_table(names, rows)}"

    def rounds_to(self, target: float) -> float | None:
        """Return the rounds that a target accuracy took; see `rounds_to`."""
        return rounds_to(*self.curve("accuracy"), target)


SHOWN = 10
"""Evaluations that a notebook shows of a history."""


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def rounds_to(rounds: Sequence[float], accuracies: Sequence[float], target: float) -> float | None:
    """Return where the learning curve first crosses the target, or None if it never does.

    McMahan 2017: each curve is made monotone by taking the best accuracy of all rounds so far, and the crossing is found
    by linear interpolation between the points. A first point that is already there counts as its own round. `rounds` may
    as well be what was spent up to them: batches, bytes or seconds.

    >>> rounds_to([1, 2, 3, 4], [0.25, 0.5, 0.4, 1.0], target=0.75)
    3.5
    >>> rounds_to([1, 2], [0.5, 0.6], target=0.85) is None
    True
    """
    curve = list(accumulate(accuracies, max))
    for index, value in enumerate(curve):
        if value >= target:
            if index == 0:
                return float(rounds[0])
            before, step = curve[index - 1], rounds[index] - rounds[index - 1]
            return rounds[index - 1] + step * (target - before) / (value - before)
    return None
