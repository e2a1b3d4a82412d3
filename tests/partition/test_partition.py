import numpy as np

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
