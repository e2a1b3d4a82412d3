"""Last batches that are smaller than the others: left out where asked for, or where the model needs it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.algorithm.parts.sampling import Epochs
from fedquilt.base import registry
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation


@pytest.fixture
def normalised():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))


SIZES = Partition.of([range(17), range(17, 37), range(37, 46), range(46, 49)])
"""With batches of 8: the first and the third client's last batch is a single example; the fourth has one short batch."""


def train(module, data, held, rounds=2, engine=None, **arguments):
    method = fedquilt.fed_avg(fraction=1.0, batch=8, **arguments)
    return fedquilt.train(module, data, held, method, rounds, engine=engine or fedquilt.inline())


def test_a_last_batch_of_one_does_not_cost_the_client_its_round(blobs, normalised):
    with pytest.warns(
        RuntimeWarning, match="2 clients would end each pass with a batch of one, which is skipped"
    ) as said:
        result = train(normalised, blobs, SIZES)
    assert len(said) == 1
    assert [record["dropped"] for record in result.history] == [[], []]
    assert [record["examples"] for record in result.history] == [16 + 20 + 8 + 3] * 2
    with pytest.warns(RuntimeWarning, match="which is skipped"):
        assert train(normalised, blobs, SIZES, engine=fedquilt.processes(workers=2)).digest == result.digest


def test_it_can_be_forbidden(blobs, normalised):
    with pytest.warns(RuntimeWarning, match="client 0 was left out of round 1 .*more than 1 value per channel"):
        result = train(normalised, blobs, SIZES, drop_last=False)
    assert [left["client"] for left in result.history.records[0]["dropped"]] == [0, 2]


@pytest.mark.filterwarnings("ignore:client 0 was left out:RuntimeWarning")
def test_a_client_with_a_single_example_is_named_with_the_reason(blobs, normalised):
    held = Partition.of([range(1), range(1, 21)])
    with pytest.warns(RuntimeWarning, match="1 client with a single example cannot train"):
        result = train(normalised, blobs, held, rounds=1)
    [left] = result.history.records[0]["dropped"]
    assert left["client"] == 0
    assert left["reason"].startswith("holds a single example, and the model's batch normalisation needs two")


@pytest.mark.parametrize("name", ["ditto", "server_training", "fine_tuned"])
def test_a_second_training_leaves_it_out_too(name, blobs, normalised):
    method = registry.wrappers[name](fedquilt.fed_avg(fraction=1.0, batch=8), batch=8)
    federation = Federation.of(normalised, blobs, SIZES, method, 1).algorithm
    inner = {
        "ditto": lambda: federation.exchanges[0].end.args[0],
        "server_training": lambda: federation.after.algorithm,
        "fine_tuned": lambda: federation.per_client.personalise.by,
    }[name]()
    assert federation.sample.drop_last == inner.sample.drop_last == "single"


def test_a_model_that_can_learn_from_one_example_keeps_it(blobs, smooth):
    """Without batch normalisation, and with one over an image's places: the same batches as ever, and no notice."""
    places = nn.Sequential(nn.Unflatten(1, (2, 4)), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(8, 3))
    for module in (smooth, places):
        result = train(module, blobs, SIZES)
        assert result.history.records[0]["dropped"] == []
        assert result.history.records[0]["examples"] == 49
        assert Federation.of(module, blobs, SIZES, fedquilt.fed_avg(), 1).algorithm.sample.drop_last == "auto"


@pytest.mark.parametrize("reshuffle", [True, False])
@pytest.mark.parametrize(("size", "trained"), [(1, 1), (7, 7), (8, 8), (9, 8), (15, 8), (16, 16), (17, 16)])
def test_asked_for_every_short_last_batch_is_left_out_but_never_the_only_one(size, trained, reshuffle):
    kept, left = (Epochs(3, 8, reshuffle, drop) for drop in (False, True))
    order, cuts = left(size, np.random.default_rng(0))
    assert len(order) == cuts[-1] == 3 * trained
    assert set(np.diff(cuts)) == {min(size, 8)}
    whole, _ = kept(size, np.random.default_rng(0))  # the same draws
    assert order.reshape(3, -1).tolist() == whole.reshape(3, -1)[:, :trained].tolist()


def test_one_shot_counts_its_passes_without_what_is_left_out(blobs, normalised):
    method = fedquilt.one_shot(batch=8, max_epochs=5, tolerance=0.0, patience=5)
    with pytest.warns(RuntimeWarning, match="which is skipped"):
        result = fedquilt.train(normalised, blobs, SIZES, method, 1, engine=fedquilt.inline())
    assert result.history.records[0]["examples"] == 5 * (16 + 20 + 8 + 3)
