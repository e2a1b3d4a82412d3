"""Every partition in rounds of training: in worker processes, and in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.base.errors import DataError
from fedquilt.base.registry import partitions
from fedquilt.data.data import Data, Noise
from fedquilt.partition.partition import Partition


@pytest.fixture
def owned(blobs: Data) -> Data:
    """The small data with natural owners and places."""
    rng = np.random.default_rng(0)

    def with_owners(split):
        coordinates = np.stack([rng.uniform(-60, 60, len(split)), rng.uniform(-170, 170, len(split))], axis=1)
        return replace(split, ids=np.arange(len(split)) % 8, coordinates=coordinates)

    return replace(blobs, train=with_owners(blobs.train), test=with_owners(blobs.test))


@pytest.mark.parametrize("name", list(partitions))
def test_a_round_in_processes_and_in_blocks(
    name: str, owned: Data, smooth: nn.Module, make_partition: Callable[..., Partition]
) -> None:
    held = make_partition(name, owned)
    method = fedquilt.fed_avg(fraction=0.5, batch=8)

    def train(engine):
        return fedquilt.train(smooth, owned, held, method, rounds=2, engine=engine)

    inline, processes = train(fedquilt.inline()), train(fedquilt.processes(workers=2))
    mapped = train(fedquilt.vectorised(block=3, workers=1))
    assert inline.digest == processes.digest
    assert (inline.state.vector - mapped.state.vector).abs().max() < 1e-5
    for result in (inline, processes, mapped):
        assert all(record["applied"] and not record["dropped"] for record in result.history)
    if held.test is not None:
        assert inline.history.records[-1]["per_client_accuracy"] == processes.history.records[-1]["per_client_accuracy"]


def noisy(data: Data, noise: Noise) -> Data:
    """Add all noise beforehand."""
    x = noise.added(data.train.x, np.arange(len(data.train)))
    return replace(data, train=replace(data.train, x=x))


@pytest.mark.parametrize("prepared", [False, True])
def test_noise_is_as_if_added_beforehand(prepared: bool, blobs: Data, smooth: nn.Module) -> None:
    held = fedquilt.feature_skew(blobs.train.y.numpy(), clients=6, sigma=1.0, seed=2)
    assert held.noise is not None
    data = replace(blobs, prepare=torch.Tensor.clone) if prepared else blobs
    clean = replace(held, noise=None)
    for method in (
        fedquilt.fed_avg(fraction=0.5, epochs=3),
        fedquilt.centralised(),
        fedquilt.server_training(fedquilt.fed_avg(), share=0.2),
        fedquilt.own_test(fedquilt.fed_avg(), holdout=0.3),
        fedquilt.fed_avg_r(fedquilt.fed_avg(fraction=1.0)),
    ):
        one, two, without = (
            fedquilt.train(smooth, each, partition, method, rounds=2, engine=fedquilt.inline(), train_loss=True)
            for each, partition in ((data, held), (noisy(data, held.noise), clean), (data, clean))
        )
        assert one.digest == two.digest != without.digest
        last, same = one.history.records[-1], two.history.records[-1]
        assert last["train_loss"] == same["train_loss"]
        assert last.get("per_client_accuracy") == same.get("per_client_accuracy")


def test_noise_has_the_variance_it_says() -> None:
    noise = Noise(np.repeat(np.array([0.0, 0.5, 2.0], dtype=np.float32), 40), seed=4)
    drawn = noise.added(torch.zeros(120, 500), np.arange(120)).reshape(3, -1).double()
    assert drawn[0].abs().max() == 0
    # The standard deviation of 20,000 draws is within 5 standard errors, σ/√(2n), of the true one.
    for row, std in ((1, 0.5), (2, 2.0)):
        assert float(drawn[row].std()) == pytest.approx(std, abs=5 * std / np.sqrt(40_000))
        assert float(drawn[row].mean()) == pytest.approx(0, abs=5 * std / np.sqrt(20_000))
    other = Noise(noise.std, seed=5).added(torch.zeros(120, 500), np.arange(120))
    test = Noise(noise.std, seed=4, split="test").added(torch.zeros(120, 500), np.arange(120))
    assert not (other == drawn.reshape(120, 500)).any(dim=1)[40:].all()
    assert not (test == drawn.reshape(120, 500)).any(dim=1)[40:].all()


def test_noise_on_whole_numbers_is_refused() -> None:
    with pytest.raises(DataError, match="noise can only be added to floating-point inputs"):
        Noise(np.ones(2, dtype=np.float32), seed=0).added(torch.zeros(2, 3, dtype=torch.int64), np.arange(2))


def test_noise_that_cannot_be_added_is_refused_before_the_first_round() -> None:
    x, y = np.arange(40).reshape(20, 2) % 5, np.arange(20) % 2
    data = fedquilt.arrays(x, y, x, y)
    model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))
    with pytest.raises(fedquilt.FedquiltError, match="noise can only be added to floating-point inputs"):
        fedquilt.train(model, data, fedquilt.feature_skew(y, clients=2, sigma=1.0), fedquilt.fed_avg(), rounds=1)


def test_a_run_with_other_noise_or_own_tests_is_another_run(blobs: Data, smooth: nn.Module, tmp_path: Path) -> None:
    labels = blobs.train.y.numpy()

    def go(held):
        fedquilt.train(smooth, blobs, held, fedquilt.fed_avg(), rounds=1, engine=fedquilt.inline(), out=tmp_path / "a")

    go(fedquilt.feature_skew(labels, clients=4))
    for other in (
        fedquilt.feature_skew(labels, clients=4, sigma=0.2),
        fedquilt.iid(labels, clients=4),
        fedquilt.feature_skew(labels, clients=4, own_test=True, data=blobs),
    ):
        with pytest.raises(fedquilt.FedquiltError, match="run of another federation"):
            go(other)
