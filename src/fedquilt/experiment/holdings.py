"""Who holds what, as a run folder keeps it: the numbers of a population that figures and tables need, not its examples.

`population.json` has the measures of `fedquilt partition` and, for at most 100 clients at even distances, how many examples
of each class they hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedquilt.analysis.skew import skew
from fedquilt.base.arguments import ArgumentError, check
from fedquilt.data.data import Data
from fedquilt.experiment.records import Whole
from fedquilt.experiment.sealed import DamagedError, sealed_json, unsealed_json
from fedquilt.partition.partition import Partition
from fedquilt.round.measures import finite_or_none

SHOWN = 100
"""Clients shown in a figure of who holds what; of more, as many are taken at even distances."""


@dataclass(frozen=True)
class Holdings:
    """Some clients of a population and how many examples of each class they hold; `measures` are of all clients."""

    clients: int
    classes: int
    class_names: tuple[str, ...] | None
    shown: tuple[int, ...]
    counts: tuple[dict[int, int], ...]
    measures: dict[str, float | None]

    @property
    def emd(self) -> float | None:
        """The mean distance of clients' classes from all clients' (Hsu 2020), where examples have classes."""
        return self.measures.get("emd")

    def name_of(self, label: int) -> str:
        """Return the name of a class, or its number where the data have no names."""
        return str(label) if self.class_names is None else self.class_names[label]

    def to_json(self) -> str:
        """Write what `read_holdings` reads."""
        return sealed_json(
            {
                "clients": self.clients,
                "classes": self.classes,
                "class_names": None if self.class_names is None else list(self.class_names),
                "shown": list(self.shown),
                "counts": [{str(label): count for label, count in each.items()} for each in self.counts],
                "measures": self.measures,
            }
        )


def holdings_of(data: Data, partition: Partition) -> Holdings:
    """Measure a population, and pick the clients to show."""
    labels = data.train.y.numpy()
    held = np.flatnonzero(partition.sizes)
    if len(held) > SHOWN:
        held = held[np.linspace(0, len(held) - 1, SHOWN).astype(int)]
    shown = [int(k) for k in held]
    classes = data.classes if labels.ndim == 1 else 0
    counts = [_counted(labels, partition.client(k)) if classes else {0: len(partition.client(k))} for k in shown]
    measures = {key: finite_or_none(value) for key, value in skew(partition, labels).summary().items()}
    names = None if data.class_names is None or not classes else tuple(data.class_names)
    return Holdings(len(partition), classes, names, tuple(shown), tuple(counts), measures)


def read_holdings(content: bytes) -> Holdings:
    """Read the content of `population.json`, or raise a DamagedError."""
    about = unsealed_json(content)
    try:
        check(_holdings, about)
    except ArgumentError as error:
        raise DamagedError("; ".join(f"{problem.key}: {problem.message}" for problem in error.problems)) from None
    names, classes = about["class_names"], about["classes"]
    counts = tuple({int(label): count for label, count in each.items()} for each in about["counts"])
    within = all(0 <= label < max(classes, 1) for each in counts for label in each) and all(counts)
    if len(counts) != len(about["shown"]) or not within or (names is not None and len(names) != classes):
        raise DamagedError("its numbers of clients and classes do not fit together")
    shown = tuple(about["shown"])
    return Holdings(
        about["clients"], classes, None if names is None else tuple(names), shown, counts, about["measures"]
    )


def _holdings(
    clients: Whole,
    classes: Whole,
    class_names: list[str] | None,
    shown: list[Whole],
    counts: list[dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Annotated[int, Field(ge=1, lt=2**63)]]],
    measures: dict[str, float | None],
) -> None:
    """Name the keys of `population.json` and their types."""


def _counted(labels: npt.NDArray[np.integer[Any]], examples: npt.NDArray[np.integer[Any]]) -> dict[int, int]:
    found, counts = np.unique(labels[examples], return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))
