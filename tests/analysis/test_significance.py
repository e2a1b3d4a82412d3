"""t-tests against SciPy and against values that were worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedquilt.analysis.significance import compare_to_best, t_test


def test_paired_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, standard deviation 1, t = 2·√3 with 2 degrees of freedom.

    With 2 degrees of freedom, the distribution function is 1/2 + t / (2·√(2 + t²)): p = 1 − t / √(2 + t²).
    """
    found = t_test([2, 4, 6], [1, 2, 3])
    statistic = 2 * math.sqrt(3)
    assert found.statistic == pytest.approx(statistic)
    assert found.degrees == 2
    assert found.p == pytest.approx(1 - statistic / math.sqrt(2 + statistic**2))


def test_welch_by_hand() -> None:
    """Variances 1 and 4 of three values each: t = (2 − 5) / √(1/3 + 4/3), degrees (5/3)² / ((1/3)²/2 + (4/3)²/2)."""
    found = t_test([1, 2, 3], [3, 5, 7], "welch")
    assert found.statistic == pytest.approx(-3 / math.sqrt(5 / 3))
    assert found.degrees == pytest.approx((25 / 9) / (1 / 18 + 16 / 18))


values = st.lists(st.floats(0, 1).map(lambda x: round(x, 3)), min_size=3, max_size=12)


@settings(max_examples=100, deadline=None)
@given(values, values)
def test_the_same_as_scipy(a: list[float], b: list[float]) -> None:
    if np.ptp(a) > 0.01 and np.ptp(b) > 0.01:
        welch = stats.ttest_ind(a, b, equal_var=False)
        assert t_test(a, b, "welch").p == pytest.approx(welch.pvalue)
        assert t_test(a, b, "welch", sides=1).p == pytest.approx(
            stats.ttest_ind(a, b, equal_var=False, alternative="less").pvalue
        )
    n = min(len(a), len(b))
    if np.ptp(np.subtract(a[:n], b[:n])) > 0.01:
        assert t_test(a[:n], b[:n]).p == pytest.approx(stats.ttest_rel(a[:n], b[:n]).pvalue)


def test_values_that_do_not_vary() -> None:
    assert t_test([0.5, 0.5], [0.5, 0.5]).p == 1
    assert t_test([0.5, 0.6], [0.7, 0.8]).p == 0, "the same difference every time"
    assert t_test([0.7, 0.7], [0.5, 0.5], "welch", sides=1).p == 1, "it is not smaller"


def test_few_or_unequal_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two values"):
        t_test([0.5], [0.6])
    with pytest.raises(ValueError, match="equally many values in both samples, got 2 and 3"):
        t_test([0.5, 0.6], [0.6, 0.7, 0.8])


def test_pairing_finds_what_welch_does_not() -> None:
    """Runs of one seed rise and fall together: Wei 2022 finds differences of a tenth of a point significant."""
    seeds = np.linspace(0.80, 0.90, 10)
    wiggle = np.array([1, -1] * 5) * 1e-4
    best, other = list(seeds + 0.002 + wiggle), list(seeds - wiggle)
    assert compare_to_best([other, best]).not_worse == (False, True)
    assert compare_to_best([other, best], "welch").not_worse == (True, True)


def test_of_losses_the_lowest_is_the_best() -> None:
    found = compare_to_best([[0.5, 0.6, 0.55], [0.1, 0.2, 0.15]], lower_is_better=True, sides=1)
    assert (found.best, found.not_worse) == (1, (False, True))
