"""Every registered partition, made of any data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.base.arguments import takes
from fedquilt.base.registry import partitions
from fedquilt.data.data import Data
from fedquilt.partition.partition import Partition
from fedquilt.partition.stored import to_bytes

ARGUMENTS: dict[str, dict[str, Any]] = {
    "class_blocks": {"classes": 2},
    "dirichlet": {"alpha": 0.5},
    "feature_skew": {"sigma": 2.0},
    "geo": {"most": 60},
}
"""What a partition cannot do without; a partition with other needs is entered here when it is registered."""


@pytest.fixture
def make_partition(tmp_path: Path) -> Callable[..., Partition]:
    """Make a partition by its name, with own tests where it can have them."""

    def make(name: str, data: Data, clients: int = 8, **arguments: Any) -> Partition:
        function, labels = partitions[name], data.train.y.numpy()
        arguments = ARGUMENTS.get(name, {}) | arguments
        if name == "stored":
            arguments["path"] = tmp_path / "partition.npz"
            held = fedquilt.iid(labels, clients=clients, own_test=True, data=data)
            arguments["path"].write_bytes(to_bytes(held, labels, test_rows=len(data.test)))
        offered = {"labels": labels, "data": data, "own_test": True, "clients": clients}
        made = function(**arguments, **{key: value for key, value in offered.items() if takes(function, key)})
        assert isinstance(made, Partition)
        return made

    return make
