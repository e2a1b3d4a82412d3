from __future__ import annotations

import numpy as np
import pytest

from fedquilt.partition.partition import Partition


@pytest.fixture
def four() -> Partition:
    """Four sites of different sizes, their examples in the order of the data set."""
    return Partition.by_sizes(np.arange(240), np.array([30, 90, 48, 72]))
