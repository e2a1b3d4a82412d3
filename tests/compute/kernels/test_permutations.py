"""Permutations by the kernel are NumPy's, for every key and length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.compute.kernels import permutations as module
from fedquilt.compute.kernels.build import installed_library

needs_kernel = pytest.mark.skipif(
    installed_library(module.KERNEL) is None, reason="fedquilt was installed without kernels"
)
numbers = st.integers(0, 2**63 - 1)
clients = st.lists(st.tuples(numbers, numbers, st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=6)


@needs_kernel
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(-(2**63), 2**63 - 1), purpose=st.text(max_size=20), round_=numbers, asked=clients)
def test_they_are_those_of_numpy(seed, purpose, round_, asked):
    assert module._agrees()
    columns = list(zip(*asked, strict=True))
    expected = module._by_numpy(seed, purpose, round_, *columns)
    assert np.array_equal(module.permutations(seed, purpose, round_, *columns), expected)


@needs_kernel
@pytest.mark.parametrize("length", [1, 2, 2**12, 2**16 + 1, 10**6])
def test_long_ones(length):
    asked = (1, "sample", 3, [5], [6], [length], [1])
    assert np.array_equal(module.permutations(*asked), module._by_numpy(*asked))


@needs_kernel
def test_the_kernel_is_used_and_only_while_it_agrees(monkeypatch):
    assert module._agrees()
    called = []
    monkeypatch.setattr(module, "_by_numpy", lambda *asked: called.append(asked))
    asked = (1, "sample", 3, [5], [6], [10], [1])
    module.permutations(*asked)
    assert not called
    monkeypatch.setattr(module, "_agrees", lambda: False)
    module.permutations(*asked)
    module.permutations(1, "a long purpose" * 10, 3, [5], [6], [10], [1])
    assert len(called) == 2


@needs_kernel
def test_another_numpy_is_noticed(monkeypatch):
    monkeypatch.setattr(module, "_by_numpy", lambda *asked: np.arange(1101))
    assert not module._agrees.__wrapped__()
