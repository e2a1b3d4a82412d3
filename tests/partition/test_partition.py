from typing import Any

import numpy as np
import pytest

from fedquilt.base.errors import SpecError
from fedquilt.partition import Partition


def test_clients_of_any_size() -> None:
    held = Partition.of([[3], [], [1, 0]])
    assert [held.client(k).tolist() for k in range(3)] == [[3], [], [1, 0]]
    assert held.sizes.tolist() == [1, 0, 2]


def test_pooled() -> None:
    held = Partition.of([[3], [1, 0]]).pooled()
    assert len(held) == 1
    assert held.client(0).tolist() == [3, 1, 0]


def test_class_counts() -> None:
    counts = Partition.of([[0, 2], [1], []]).class_counts(np.array([2, 0, 2]), classes=3)
    assert counts.tolist() == [[0, 0, 2], [1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("clients", [[[0, -1]], [[0.7]], []], ids=["negative", "fraction", "nobody"])
def test_positions_are_whole_numbers_from_0(clients: Any) -> None:
    with pytest.raises(SpecError):
        Partition.of(clients)
