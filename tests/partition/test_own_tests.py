"""Clients' own test examples: whose they are, and that they are what clients are tested on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.data.data import Data, Split
from fedquilt.partition.dealing import deal_tests

PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {},
    "shards": {},
    "dirichlet": {"alpha": 0.5},
    "dirichlet_per_class": {},
    "stratified": {},
    "class_blocks": {"classes": 2},
    "power_law": {},
    "quantity_skew": {},
    "feature_skew": {},
}


@pytest.fixture(scope="module")
def images() -> Data:
    """As CIFAR-10 in numbers: 50,000 and 10,000 examples of ten classes."""
    train, test = (torch.arange(n) % 10 for n in (50_000, 10_000))
    return Data("images", Split(torch.zeros(50_000, 1), train), Split(torch.zeros(10_000, 1), test), classes=10)


def test_mcmahans_cifar_clients(images: Data) -> None:
    held = fedquilt.iid(images.train.y.numpy(), clients=100, own_test=True, data=images)
    assert (held.sizes == 500).all()
    assert held.test is not None
    assert (held.test.sizes == 100).all()
    assert np.array_equal(np.sort(held.test.indices), np.arange(10_000))


def test_two_classes_to_train_are_the_two_to_be_tested_on(images: Data) -> None:
    labels = images.train.y.numpy()
    held = fedquilt.shards(labels, clients=100, own_test=True, data=images)
    assert held.test is not None
    train, test = held.class_counts(labels, 10), held.test.class_counts(images.test.y.numpy(), 10)
    assert np.array_equal(test * 5, train)


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_partition_deals_out_the_test_set_as_it_does_the_training_set(name: str, images: Data) -> None:
    labels = images.train.y.numpy()
    make = getattr(fedquilt, name)
    held = make(labels, clients=20, own_test=True, data=images, **PARTITIONS[name])
    plain = make(labels, clients=20, **PARTITIONS[name])
    assert plain.test is None
    assert np.array_equal(held.indices, plain.indices)
    assert np.array_equal(np.sort(held.test.indices), np.arange(10_000))
    assert np.abs(held.test.sizes - held.sizes / 5).max() <= 2
    if name in {"shards", "dirichlet", "dirichlet_per_class", "stratified", "class_blocks"}:
        train, test = held.class_counts(labels, 10), held.test.class_counts(images.test.y.numpy(), 10)
        assert np.abs(test - train / 5).max() <= 1


@settings(max_examples=80, deadline=None)
@given(
    counts=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5),
    clients=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_no_test_example_has_two_owners_and_none_is_of_a_class_not_held(
    counts: list[tuple[int, int]], clients: int, seed: int
) -> None:
    labels, tests = (np.repeat(np.arange(len(counts)), [pair[i] for pair in counts]) for i in (0, 1))
    if clients > len(labels):
        return
    held = fedquilt.dirichlet_per_class(labels, clients, 0.3, least=0, seed=seed)
    own = deal_tests(held, labels, tests, seed)
    assert len(own) == clients
    assert len(np.unique(own.indices)) == len(own.indices)
    train, test = held.class_counts(labels, len(counts)), own.class_counts(tests, len(counts))
    assert not test[train == 0].any()
    due = [tested for trained, tested in counts if trained]
    assert len(own.indices) == sum(due)


def test_own_tests_need_the_data() -> None:
    with pytest.raises(SpecError, match="own_test: divides the test set, so pass the data set too"):
        fedquilt.iid(np.zeros(4, dtype=int), clients=2, own_test=True)


def test_clients_are_tested_on_their_own_examples(blobs: Data, smooth: torch.nn.Module) -> None:
    held = fedquilt.dirichlet(blobs.train.y.numpy(), clients=6, alpha=0.3, own_test=True, data=blobs)
    method = fedquilt.fed_avg(fraction=0.5, lr=0.02)
    result = fedquilt.train(smooth, blobs, held, method, rounds=2, engine=fedquilt.inline())
    right = (result.model(blobs.test.x).argmax(dim=1) == blobs.test.y).numpy()
    assert held.test is not None
    each = [right[held.test.client(k)].mean() for k in range(6) if len(held.test.client(k))]
    record = result.history.records[-1]
    assert record["per_client_accuracy"] == pytest.approx(right[held.test.indices].mean())
    assert record["per_client_accuracy_worst_tenth"] == pytest.approx(min(each))
    alone = fedquilt.train(smooth, blobs, replace(held, test=None), method, rounds=2, engine=fedquilt.inline())
    assert alone.digest == result.digest


def test_own_test_examples_count_and_nothing_is_held_out(blobs: Data, smooth: torch.nn.Module) -> None:
    held = fedquilt.iid(blobs.train.y.numpy(), clients=6, own_test=True, data=blobs)
    plain = fedquilt.fed_avg(fraction=0.5)
    one, other = (
        fedquilt.train(smooth, blobs, held, method, rounds=2, engine=fedquilt.inline())
        for method in (plain, fedquilt.own_test(plain, holdout=0.5))
    )
    assert one.digest == other.digest
    assert one.history.records[-1]["per_client_accuracy"] == other.history.records[-1]["per_client_accuracy"]


def test_own_tests_that_do_not_fit_are_refused(blobs: Data, smooth: torch.nn.Module) -> None:
    held = fedquilt.iid(blobs.train.y.numpy(), clients=2)
    for test, words in (
        (fedquilt.Partition.of([[0], [90]]), "names example 90, .* only 90 test examples"),
        (fedquilt.Partition.of([[0]]), "has 2 clients, but per-client tests for 1"),
    ):
        with pytest.raises(FedquiltError, match=words):
            fedquilt.train(smooth, blobs, replace(held, test=test), fedquilt.fed_avg(), rounds=1)


def test_natural_clients() -> None:
    x, y = torch.zeros(6, 1), torch.tensor([0, 1, 0, 1, 0, 1])
    train = Split(x, y, ids=np.array([10, 30, 10, 30, 20, 10]))
    ids = np.array([30, 5, 30, 40, 10, 10])
    test = Split(x, y, ids=ids)
    held = fedquilt.natural(Data("mine", train, test, classes=2))
    assert [held.client(k).tolist() for k in range(3)] == [[0, 2, 5], [4], [1, 3]]
    assert held.test is not None
    assert [held.test.client(k).tolist() for k in range(3)] == [[4, 5], [], [0, 2]]
    strangers = replace(test, ids=ids + 100)
    assert fedquilt.natural(Data("mine", train, strangers, classes=2)).test is None, "nobody has a test of its own"
    larger = fedquilt.natural(Data("mine", train, test, classes=2), least=2, own_test=False)
    assert [larger.client(k).tolist() for k in range(2)] == [[0, 2, 5], [1, 3]]
    assert larger.test is None
    with pytest.raises(SpecError, match="no client holds 4 examples; the largest client holds 3"):
        fedquilt.natural(Data("mine", train, test, classes=2), least=4)
    with pytest.raises(SpecError, match="does not record which client holds which example"):
        fedquilt.natural(Data("mine", Split(x, y), test, classes=2))
