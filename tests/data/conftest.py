"""What tests of data sets with clients of their own share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

import fedquilt
from fedquilt.data.data import Data
from fedquilt.experiment.result import Result


@pytest.fixture
def train_by_id() -> Callable[[Data, nn.Module], Result]:
    """Train one round, a client for every number among the examples' own, in two worker processes."""

    def train(data: Data, module: nn.Module) -> Result:
        held = fedquilt.natural(data, own_test=False)
        method = fedquilt.fed_avg(lr=0.5, fraction=1.0, batch=5)
        result = fedquilt.train(module, data, held, method, rounds=1, engine=fedquilt.processes(workers=2))
        assert sorted(result.history.records[0]["clients"]) == list(range(len(held)))
        assert not result.history.records[0].get("dropped")
        return result

    return train
