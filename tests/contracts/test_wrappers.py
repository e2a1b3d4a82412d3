"""What every registered wrapper must keep when it is applied twice."""

from __future__ import annotations

import every_method
import pytest
from every_method import base, made

import fedquilt
from fedquilt.base import registry
from fedquilt.base.errors import SpecError

ONCE = list(registry.wrappers)
WITH_VALUES = [name for name in ONCE if every_method.parameters(name)]


@pytest.mark.parametrize("name", ONCE)
def test_applied_twice_with_the_same_values_it_counts_once(name):
    wrapper, arguments = registry.wrappers[name], (every_method.VARIANTS[name] or [{}])[0]
    once = made(name, **arguments)
    assert wrapper(once, **arguments) is once
    later = fedquilt.norm_bound(once) if name != "norm_bound" else fedquilt.fed_prox(once)
    assert wrapper(later, **arguments) is later, "whatever was applied in between"


@pytest.mark.parametrize("name", WITH_VALUES)
def test_applied_twice_with_other_values_it_is_refused_and_both_are_named(name):
    wrapper, other = registry.wrappers[name], every_method.VARIANTS[name][0]
    key, value = next(iter(other.items()))
    default = every_method.parameters(name)[key].default
    for first, second in (({}, other), (other, {})):
        with pytest.raises(SpecError, match=f"{name} is applied twice, with different values") as refused:
            wrapper(wrapper(base(), **first), **second)
        assert f"{key} = {value!r}" in str(refused.value)
        assert f"{key} = {default!r}" in str(refused.value)


@pytest.mark.parametrize("clusters", [1, 2, 3])
def test_clusters_and_a_threshold_are_refused_together(clusters):
    with pytest.raises(SpecError, match=rf"clusters = {clusters} and threshold = 0\.5: set only one of them"):
        fedquilt.fl_hc(base(), clusters=clusters, threshold=0.5)
    assert fedquilt.fl_hc(base()).course.round.clusters == 2
    assert fedquilt.fl_hc(base(), threshold=0.5).course.round.clusters is None
