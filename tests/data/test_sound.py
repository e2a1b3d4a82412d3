"""Data and populations that nothing can be learnt from: refused before the first round, from Python and from a spec."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from torch import nn

import fedquilt
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.data.data import Data, Split, require_sound
from fedquilt.partition.partition import Partition

LABELS = torch.arange(6) % 2
FULL = Split(torch.zeros(6, 2), LABELS, ids=np.arange(6) % 3, coordinates=np.zeros((6, 2)))
EMPTY = Split(torch.zeros(0, 2), LABELS[:0], ids=np.zeros(0, dtype=np.int64), coordinates=np.zeros((0, 2)))
HELD = Partition.of([[0, 1, 2], [3, 4, 5]])

WRONG = [
    (Data("mine", EMPTY, FULL, classes=2), "mine: has no examples to train on"),
    (Data("mine", FULL, EMPTY, classes=2), "mine: has no examples to test on"),
    (Data("mine", FULL, replace(FULL, y=LABELS + 1), classes=2), "mine: a label to test on is 2; with 2 classes"),
    (Data("mine", replace(FULL, y=LABELS - 1), FULL, classes=2), "mine: a label to train on is -1; with 2 classes"),
    (Data("mine", replace(FULL, y=LABELS[:5]), FULL, classes=2), "mine: has 6 examples to train on, but 5 labels"),
]


@pytest.mark.parametrize(("data", "message"), WRONG)
def test_data_that_are_not_sound(data: Data, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FedquiltError, match=message):
        fedquilt.train(nn.Linear(2, 2), data, HELD, fedquilt.fed_avg(), rounds=1, engine=fedquilt.processes(workers=2))
    module = type(sys)("own_unsound_data")
    module.load = lambda: data  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_unsound_data", module)
    spec = {"data": {"name": "own_unsound_data:load"}, "partition": {"name": "iid", "clients": 2}}
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(spec))
    with pytest.raises(SpecError, match=rf"spec\.toml: \[data\] {message}"):
        fedquilt.inspect_partition(tmp_path / "spec.toml")


def test_places_that_do_not_count_are_no_labels() -> None:
    split = Split(torch.zeros(2, 3, dtype=torch.int64), torch.tensor([[0, 1, -100], [-100, -100, -100]]))
    require_sound(Data("mine", split, split, classes=2))
    wrong = replace(split, y=torch.tensor([[0, -1, -100]] * 2))
    with pytest.raises(FedquiltError, match="a label to train on is -1"):
        require_sound(Data("mine", wrong, split, classes=2))


def test_a_population_without_examples() -> None:
    data = Data("mine", FULL, FULL, classes=2)
    with pytest.raises(FedquiltError, match="the partition gives no client an example to train on"):
        fedquilt.train(nn.Linear(2, 2), data, Partition.of([[], []]), fedquilt.fed_avg(), rounds=1)


@pytest.mark.filterwarnings("ignore:client 1 was left out of round 1.*holds no examples:RuntimeWarning")
def test_a_client_without_examples_is_left_out_and_named() -> None:
    data, held = Data("mine", FULL, FULL, classes=2), Partition.of([[0, 1], [], [2, 3]])
    method, engine = fedquilt.fed_avg(fraction=1.0), fedquilt.processes(workers=2)
    (record,) = fedquilt.train(nn.Linear(2, 2), data, held, method, rounds=1, engine=engine).history
    assert record["dropped"] == [{"client": 1, "kind": "no examples", "reason": "holds no examples"}]
    assert sorted(record["clients"]) == [0, 2]


NONE = np.zeros(0, dtype=np.int64)


@pytest.mark.parametrize(
    "make",
    [
        lambda: fedquilt.iid(NONE, clients=2),
        lambda: fedquilt.shards(NONE, clients=2),
        lambda: fedquilt.stratified(NONE, clients=2),
        lambda: fedquilt.class_blocks(NONE, clients=2, classes=1),
        lambda: fedquilt.dirichlet(NONE, clients=2, alpha=1.0),
        lambda: fedquilt.dirichlet_per_class(NONE, clients=2),
        lambda: fedquilt.power_law(NONE, clients=2),
        lambda: fedquilt.quantity_skew(NONE, clients=2),
        lambda: fedquilt.feature_skew(NONE, clients=2),
        lambda: fedquilt.natural(WRONG[0][0]),
        lambda: fedquilt.geo(WRONG[0][0], most=3),
    ],
)
def test_no_partition_can_be_made_of_nothing(make: Callable[[], Partition]) -> None:
    with pytest.raises(
        SpecError, match=r"of 0; at most 0|there are no examples|has no examples|no cell has|there are 0"
    ):
        make()
