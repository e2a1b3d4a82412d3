"""Every data set with every partition in a round of training, or a clear message why not; every data set in workers, too.

The data sets are those of `sample_data.every_data_set`. A data set that is registered and not entered there, or a partition
that is not entered here, fails the first test.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sample_data.every_data_set import CASES, Case
from torch import nn

import fedquilt
from fedquilt.base.errors import FedquiltError
from fedquilt.base.registry import datasets, partitions
from fedquilt.compute.layout import Layout
from fedquilt.data.data import Data
from fedquilt.models import word_lstm
from fedquilt.partition.partition import Partition

pytestmark = pytest.mark.filterwarnings("ignore:.* differs from what was published:RuntimeWarning")

CLIENTS = 3
BY_CLASS = {"class_blocks", "dirichlet", "dirichlet_per_class", "shards", "stratified"}
BY_SIZE = {"iid", "power_law", "quantity_skew", "stored"}


def refusal(case: Case, partition: str) -> str | None:
    """Return what is said of a pair that makes no sense."""
    if partition == "geo" and not case.coordinates:
        return "needs coordinates, but the data set .* has none"
    if partition == "natural" and not case.clients:
        return "the data set .* does not record which client holds which example; use another partition"
    if partition in BY_CLASS and case.sequences:
        return "needs one class per example, but the labels of this data set have the shape"
    if partition in BY_CLASS and case.numbers:
        return "needs one class per example, but this data set has numerical targets"
    if partition == "feature_skew" and case.sequences:
        return "noise can only be added to floating-point inputs"
    return None


def tiny(data: Data) -> nn.Module:
    torch.manual_seed(0)
    if data.train.y.dim() == 2:
        return word_lstm(vocabulary=data.classes, embedding=4, hidden=4)
    x = data.train.x[:2] if data.prepare is None else data.prepare(data.train.x[:2])
    return nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), data.classes or 1))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Data]:
    """Load each data set once."""
    known: dict[str, Data] = {}

    def load(name: str) -> Data:
        if name not in known:
            home = tmp_path_factory.mktemp("home")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("FEDQUILT_DATA", str(home))
                known[name] = CASES[name].write(home, patch)()
        return known[name]

    return load


def test_every_data_set_and_partition_is_entered_here() -> None:
    assert {name.split()[0] for name in CASES} == set(datasets)
    assert BY_CLASS | BY_SIZE | {"feature_skew", "geo", "natural"} == set(partitions)


@pytest.mark.parametrize("name", CASES)
def test_a_data_set_has_what_is_said_of_it(name: str, loaded: Callable[[str], Data]) -> None:
    data, case = loaded(name), CASES[name]
    assert (data.train.ids is not None) == case.clients
    assert (data.train.coordinates is not None) == case.coordinates
    assert (data.train.y.dim() == 2) == case.sequences
    assert data.train.y.is_floating_point() == (data.classes == 0) == case.numbers


@pytest.mark.parametrize("partition", list(partitions))
@pytest.mark.parametrize("name", CASES)
def test_a_round(
    name: str, partition: str, loaded: Callable[[str], Data], make_partition: Callable[..., Partition]
) -> None:
    data, message = loaded(name), refusal(CASES[name], partition)
    arguments = {"geo": {"most": 9}, "class_blocks": {"classes": 4}}.get(partition, {})

    def trained() -> None:
        held = make_partition(partition, data, CLIENTS, **arguments)
        assert len(held) > 1
        method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=64)
        # That workers have a data set's examples does not depend on who holds them.
        engine = fedquilt.processes(workers=2) if partition in ("iid", "feature_skew") else fedquilt.inline()
        loss = "cross_entropy" if data.classes else "mean_squared_error"
        module = tiny(data)
        result = fedquilt.train(module, data, held, method, rounds=1, engine=engine, loss=loss)
        (record,) = result.history
        assert not torch.equal(result.state.vector, Layout.of(module).read(module).vector)
        assert record["applied"]
        assert record["dropped"] == []
        assert sorted(record["clients"]) == list(range(len(held)))
        assert record["examples"] == len(held.indices)
        assert np.isfinite(record["loss"])
        assert (record.get("per_client_accuracy") is not None) == (held.test is not None and data.classes > 0)

    if message is None:
        trained()
    else:
        with pytest.raises(FedquiltError, match=message):
            trained()
