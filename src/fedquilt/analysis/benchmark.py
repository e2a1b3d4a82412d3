"""What fedquilt's own benchmark found for clients like given ones: which of all methods was best there, and how far ahead.

`benchmark.json` is taken from the results in `experiments/benchmark` by `tools/results.py`; no number in it is typed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class MethodResult:
    """A method of the benchmark on one population: mean and standard deviation of its accuracy.

    `parts` are what a spec names: a method, or wrappers. `not_worse` says that it is not significantly worse than the best.
    """

    name: str
    parts: tuple[str, ...]
    mean: float
    std: float
    not_worse: bool

    def __str__(self) -> str:
        """Write it as tables do: 'FedAvgM 88.10 ± 0.42%'."""
        return f"{self.name} {100 * self.mean:.2f} ± {100 * self.std:.2f}%"


@dataclass(frozen=True)
class Trials:
    """All methods on one of the benchmark's populations, the best first; `emd` is that of its clients."""

    title: str
    setting: str
    emd: float
    equal_sizes: bool
    methods: tuple[MethodResult, ...]


def most_similar(emd: float, equal_sizes: bool) -> list[Trials]:
    """Return, for each data set of the benchmark, what it has of the clients that are most like these.

    Where sizes differ much, those whose sizes do; and of them the ones with the nearest EMD.

    >>> [found.setting for found in most_similar(0.0, equal_sizes=True)]
    ['IID']
    """
    titles = dict.fromkeys(each.title for each in _trials())
    found = []
    for title in titles:
        of_it = [each for each in _trials() if each.title == title]
        alike = [each for each in of_it if each.equal_sizes == equal_sizes] or of_it
        found.append(min(alike, key=lambda each: abs(each.emd - emd)))
    return found


@cache
def _trials() -> tuple[Trials, ...]:
    text = (files("fedquilt.analysis") / "benchmark.json").read_text(encoding="utf-8")
    return tuple(
        Trials(
            part["title"],
            setting["name"],
            setting["emd"],
            setting["equal_sizes"],
            tuple(
                MethodResult(one["name"], tuple(one["parts"]), one["mean"], one["std"], one["not_significantly_worse"])
                for one in setting["methods"]
            ),
        )
        for part in json.loads(text)
        for setting in part["settings"]
    )
