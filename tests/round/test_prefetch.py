"""Batches made ready by a thread: the same ones, in the same order, and no thread is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

import pytest
import torch

import fedquilt
from fedquilt.base.errors import ExampleError
from fedquilt.round.prefetch import made_ahead


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fedquilt-ahead"]


@pytest.mark.parametrize("ahead", [1, 2, 100])
def test_the_same_items_in_the_same_order(ahead):
    assert list(made_ahead(range(50), ahead)) == list(range(50))
    assert threads() == []


def test_no_more_than_asked_for_are_made_ahead():
    made = []

    def items() -> Iterator[int]:
        for item in range(100):
            made.append(item)
            yield item

    taken = made_ahead(items(), 3)
    assert list(islice(taken, 5)) == [0, 1, 2, 3, 4]
    time.sleep(0.1)
    assert len(made) <= 5 + 3 + 1  # three wait, and one is in the thread's hands
    taken.close()
    assert threads() == []


def test_items_are_made_in_another_thread_while_the_taker_is_busy():
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        made.set()
        yield 1

    taken = made_ahead(items(), 1)
    assert next(taken) == 0
    assert made.wait(timeout=10)
    taken.close()


def test_an_exception_comes_in_its_place_and_ends_the_thread():
    def items() -> Iterator[int]:
        yield 0
        raise ExampleError("the third is damaged")

    taken = made_ahead(items(), 5)
    assert next(taken) == 0
    with pytest.raises(ExampleError, match="the third is damaged"):
        next(taken)
    assert threads() == []


def test_whoever_stops_early_ends_the_thread():
    for item in made_ahead(count(), 2):
        if item == 3:
            break
    assert threads() == []


# In training.


def jitter(raw, generator):
    return raw + torch.from_numpy(generator.normal(size=raw.shape)).float()


@pytest.mark.parametrize("method", [fedquilt.fed_avg(fraction=0.5), fedquilt.one_shot(max_epochs=3)])
def test_training_with_batches_made_ahead_gives_the_same_bits(blobs, unbalanced, smooth, method):
    def digest(**options):
        data = replace(blobs, augment=jitter, **options)
        return fedquilt.train(smooth, data, unbalanced, method, rounds=2, seed=3, engine=fedquilt.inline()).digest

    assert len({digest(), digest(ahead=1), digest(ahead=4), digest(at_once=7), digest(ahead=2, at_once=1)}) == 1
    assert threads() == []


def broken(raw):
    if bool((raw > 1e6).any()):
        raise ExampleError("photo.jpg: the image cannot be read")
    return raw


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
@pytest.mark.parametrize("engine", [fedquilt.inline(), fedquilt.processes(workers=2)], ids=["inline", "processes"])
def test_an_example_that_cannot_be_read_is_the_fault_of_its_client(blobs, unbalanced, smooth, engine):
    x = blobs.train.x.clone()
    x[unbalanced.client(2)[0]] = 1e7
    data = replace(blobs, train=replace(blobs.train, x=x), prepare=broken, ahead=2)
    method = fedquilt.fed_avg(fraction=1.0)
    result = fedquilt.train(smooth, data, unbalanced, method, rounds=1, engine=engine)
    (dropped,) = result.history.records[0]["dropped"]
    assert dropped["client"] == 2
    assert "photo.jpg: the image cannot be read" in dropped["reason"]
    assert threads() == []


def test_unreadable_examples_that_are_tried_first_do_not_stop_a_run(blobs, unbalanced, smooth):
    """The first examples, and those with the largest label, are looked at before the first round."""
    x = blobs.train.x.clone()
    x[[0, 1, int(blobs.train.y.argmax())]] = 1e7
    data = replace(blobs, train=replace(blobs.train, x=x), prepare=broken)
    with pytest.warns(RuntimeWarning, match=r"photo\.jpg"):
        result = fedquilt.train(smooth, data, unbalanced, fedquilt.fed_avg(fraction=1.0), rounds=1)
    assert result.history.records[0]["applied"]


@pytest.mark.parametrize("engine", [fedquilt.inline(), fedquilt.processes(workers=2)], ids=["inline", "processes"])
@pytest.mark.parametrize("row", [0, 17])
def test_a_test_example_that_cannot_be_read_is_an_error(blobs, unbalanced, smooth, engine, row):
    x = blobs.test.x.clone()
    x[row] = 1e7
    data = replace(blobs, test=replace(blobs.test, x=x), prepare=broken)
    with pytest.raises(fedquilt.FedquiltError, match=r"photo\.jpg: the image cannot be read"):
        fedquilt.train(smooth, data, unbalanced, fedquilt.fed_avg(), rounds=1, engine=engine)


def test_evaluation_in_parts_is_that_of_the_whole(blobs, unbalanced, smooth):
    method = fedquilt.own_test(fedquilt.fed_avg(fraction=0.5))

    def history(**options):
        data = replace(blobs, **options)
        return fedquilt.train(
            smooth, data, unbalanced, method, rounds=2, train_loss=True, diagnose=True
        ).history.records

    for whole, parts in zip(history(), history(at_once=7), strict=True):
        assert parts["conflict_rate"] == whole["conflict_rate"]
        assert parts["accuracy"] == whole["accuracy"]
        assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-6)
        assert parts["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-6)
