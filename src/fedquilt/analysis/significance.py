"""Tests of whether one method is better than another, or only seems so over a few seeds.

Wei 2022 (§5.3, Table 3) runs every method with the same ten seeds and marks, by a t-test at 95%, the methods that are not
significantly worse than the best one. Runs with the same seed share their population and their first model, so that their
differences vary less than the runs themselves: the paired test uses that. Welch's test is for runs that share nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

TTestKind = Literal["paired", "welch"]


@dataclass(frozen=True)
class TTest:
    """A t-test of whether two means differ: `p` is the probability of such a difference, or a larger one, by chance."""

    statistic: float
    degrees: float
    p: float


def t_test(first: Sequence[float], second: Sequence[float], kind: TTestKind = "paired", sides: int = 2) -> TTest:
    """Test whether the mean of `first` differs from that of `second`; with one side, whether it is smaller.

    "paired" compares values at the same position, such as those of the same seed; "welch" treats the two as independent,
    with variances that may differ.

    >>> a, b = [0.81, 0.83, 0.82], [0.84, 0.85, 0.86]
    >>> round(t_test(a, b).p, 4), round(t_test(a, b, "welch").p, 4)
    (0.0351, 0.0213)
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(a) < 2 or len(b) < 2:
        raise ValueError("a t-test needs at least two values in each sample")
    if kind == "paired" and len(a) != len(b):
        raise ValueError(f"a paired t-test needs equally many values in both samples, got {len(a)} and {len(b)}")
    if _unvarying(
        *((a - b,) if kind == "paired" else (a, b))
    ):  # SciPy warns of it, and divides by nothing but rounding
        difference = float(np.mean(a) - np.mean(b))
        statistic = math.copysign(math.inf, difference) if abs(difference) > _ROUNDING else 0.0
        sure = 1.0 if statistic == 0 or (sides == 1 and statistic > 0) else 0.0
        return TTest(statistic, float(len(a) - 1 if kind == "paired" else len(a) + len(b) - 2), sure)
    from scipy import stats  # takes a while to import

    alternative = "two-sided" if sides == 2 else "less"
    if kind == "paired":
        found = stats.ttest_rel(a, b, alternative=alternative)
    else:
        found = stats.ttest_ind(a, b, equal_var=False, alternative=alternative)
    return TTest(float(found.statistic), float(found.df), float(found.pvalue))


_ROUNDING = 1e-12
"""Differences of accuracies and losses that are smaller are rounding."""


def _unvarying(*samples: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    return all(float(np.ptp(sample)) <= _ROUNDING for sample in samples)


@dataclass(frozen=True)
class Comparison:
    """Which of several is the best on average, which are not significantly worse, and the tests against the best."""

    best: int
    not_worse: tuple[bool, ...]
    tests: tuple[TTest | None, ...]


def compare_to_best(
    samples: Sequence[Sequence[float]],
    kind: TTestKind = "paired",
    level: float = 0.95,
    sides: int = 2,
    lower_is_better: bool = False,
) -> Comparison:
    """Find the best of several samples by their means, and those that are not significantly worse, as in Wei 2022.

    >>> compare_to_best([[0.91, 0.92, 0.93], [0.90, 0.93, 0.92], [0.80, 0.81, 0.80]]).not_worse
    (True, True, False)
    """
    if not samples:
        raise ValueError("there is nothing to compare")
    means = [float(np.mean(sample)) for sample in samples]
    best = min(range(len(means)), key=lambda place: means[place] if lower_is_better else -means[place])
    tests: list[TTest | None] = []
    for place, sample in enumerate(samples):
        worse, better = (samples[best], sample) if lower_is_better else (sample, samples[best])
        tests.append(None if place == best else t_test(worse, better, kind, sides))
    return Comparison(best, tuple(test is None or test.p >= 1 - level for test in tests), tuple(tests))
