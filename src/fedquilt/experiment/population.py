"""Looks at who holds what: a spec's data set and partition, measured, drawn and stored, before anything is trained."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.analysis.advice import Advice, advice
from fedquilt.analysis.skew import Skew, skew
from fedquilt.data.data import Data
from fedquilt.experiment.build import build_population
from fedquilt.experiment.changes import change
from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.page.population import population_figures
from fedquilt.experiment.spec import Spec, check_population, load_population, unchanged
from fedquilt.experiment.tables import WRAP
from fedquilt.partition.partition import Partition
from fedquilt.partition.stored import to_bytes


@dataclass(frozen=True, eq=False)
class Inspection:
    """A population, how skewed it is, what to try first, and the files written of it."""

    data: Data
    partition: Partition
    skew: Skew
    advice: list[Advice]
    files: list[Path]

    def class_examples(self) -> list[int]:
        """Return how many examples of every class all clients hold together."""
        labels = self.data.train.y.numpy()[self.partition.indices]
        return [int(count) for count in np.bincount(labels, minlength=self.data.classes)]

    def about(self) -> dict[str, Any]:
        """Return what there is to say, as JSON has it."""
        return {
            "data": self.data.name,
            **self.skew.summary(),
            **self._classes(),
            "own_tests": self.partition.test is not None,
            "advice": [asdict(line) for line in self.advice],
            "files": [str(file) for file in self.files],
        }

    def _classes(self) -> dict[str, Any]:
        if self.data.class_names is None:
            return {}
        pairs = zip(self.data.class_names, self.class_examples(), strict=True)
        return {"class_examples": [{"class": name, "examples": count} for name, count in pairs]}


def inspect_partition(
    spec: str | Path | Mapping[str, Any] | Spec,
    sets: Iterable[str] = (),
    out: str | Path | None = None,
    unsets: Iterable[str] = (),
) -> Inspection:
    """Measure the population of a spec (a file, or its tables), of which only `[data]` and `[partition]` are needed.

    With `out`, figures and `partition.npz` are written into that folder; the partition `stored` reads the latter.

    >>> tables = {"data": {"name": "digits"}, "partition": {"name": "shards", "clients": 20}}
    >>> found = inspect_partition(tables)
    >>> found.skew.summary()["clients"], found.advice[0].methods
    (20, ('fed_avg_m',))
    """
    if isinstance(spec, Spec):
        checked = unchanged(spec, sets, unsets)
    elif isinstance(spec, str | Path):
        checked = load_population(spec, sets, unsets)
    else:
        checked = check_population(change(copy.deepcopy(dict(spec)), sets, unsets))
    data, partition = build_population(checked)
    labels = data.train.y.numpy()
    measured = skew(partition, labels)
    files = []
    if out is not None:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        files = [file for figure in population_figures(data, partition, measured) for file in figure.write(folder)]
        made_by = checked.resolved()["partition"]
        write_whole(folder / "partition.npz", to_bytes(partition, labels, made_by, len(data.test)))
        files.append(folder / "partition.npz")
    return Inspection(data, partition, measured, advice(measured, _methods(checked)), files)


def _methods(spec: Spec) -> frozenset[str]:
    """Return the names of the method and the wrappers that a spec has; they were not checked."""
    tables = [spec.free.get("method"), *(wraps if isinstance(wraps := spec.free.get(WRAP), list) else [])]
    parts = [part.name for name, part in spec.parts.items() if name.partition(" ")[0] in ("method", WRAP)]
    return frozenset([*parts, *(str(table.get("name")) for table in tables if isinstance(table, dict))])
