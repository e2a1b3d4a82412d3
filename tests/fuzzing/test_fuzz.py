"""Randomly changed specs: each trains or is refused in one short message, soon. `bench/fuzz.py` tries 100,000."""

from __future__ import annotations

import sys

import pytest
from fuzzing.mutations import mutation
from fuzzing.trials import outcomes

COUNT, PARTS = 2000, 5
"""The specs that are tried, and the tests that share them: each takes about 20 s."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited and workers are ended as Linux does it")
def test_no_spec_gives_a_traceback_a_long_wait_or_a_long_message(part: int) -> None:
    tried = list(outcomes(range(COUNT)[part::PARTS]))
    assert [f"seed {outcome.seed}: {outcome.wrong}" for outcome in tried if outcome.wrong is not None] == []
    assert sum(outcome.trained for outcome in tried) > len(tried) / 50  # else what comes after the reading is not tried
    assert sum(bool(outcome.message) for outcome in tried) > len(tried) / 2


def test_a_seed_is_always_the_same_spec() -> None:
    assert mutation(7) == mutation(7)
    assert mutation(7) != mutation(8)
