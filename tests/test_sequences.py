"""Sequences: a target at every place, padding that does not count, and the character LSTM."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.base.errors import SpecError
from fedquilt.data.data import IGNORED
from fedquilt.models import char_lstm
from fedquilt.round.evaluation import chunks, evaluate_chunk
from fedquilt.round.federation import Federation


@pytest.fixture(scope="module")
def lines():
    """Lines of a text in which every character says which comes next; shorter ones are padded."""
    rng = np.random.default_rng(0)
    text = (rng.integers(0, 7, size=(90, 1)) + np.arange(13)) % 7
    x, y = text[:, :-1].copy(), text[:, 1:].copy()
    for row, length in enumerate(rng.integers(4, 13, size=90)):
        x[row, length:], y[row, length:] = 0, IGNORED
    return fedquilt.arrays(x[:60], y[:60], x[60:], y[60:], name="lines")


def small():
    torch.manual_seed(0)
    return char_lstm(vocabulary=7, embedding=4, hidden=16)


def test_a_character_lstm_learns_and_gives_the_same_bits_everywhere(lines):
    held = fedquilt.iid(lines.train.y.numpy(), clients=6, seed=1)
    method = fedquilt.fed_avg(lr=2.0, fraction=0.5, epochs=3, batch=5)
    first = fedquilt.train(small(), lines, held, method, rounds=15, engine=fedquilt.inline())
    second = fedquilt.train(small(), lines, held, method, rounds=15, engine=fedquilt.processes(workers=2))
    assert first.history.accuracy[-1] > 0.9
    assert first.digest == second.digest


def test_padding_counts_neither_in_loss_nor_in_accuracy(lines):
    held = fedquilt.iid(lines.train.y.numpy(), clients=6)
    federation = Federation.of(small(), lines, held, fedquilt.fed_avg(), seed=1)
    loss = federation.algorithm.loss
    counted = evaluate_chunk(
        federation.replica, loss, federation.initial, lines, lines.test, (0, 30), federation.metrics
    )
    assert counted.predictions == int((lines.test.y != IGNORED).sum())
    outputs = small().eval()(lines.test.x).detach()
    kept = lines.test.y != IGNORED
    expected = torch.nn.functional.cross_entropy(outputs[kept], lines.test.y[kept], reduction="sum")
    assert counted.loss == pytest.approx(float(expected), rel=1e-5)
    assert counted.right == int((outputs.argmax(-1)[kept] == lines.test.y[kept]).sum())


def test_texts_are_evaluated_in_pieces_with_the_same_values_everywhere():
    rng = np.random.default_rng(0)
    text = (rng.integers(0, 7, size=(1600, 1)) + np.arange(13)) % 7
    x, y = text[:, :-1].copy(), text[:, 1:].copy()
    data = fedquilt.arrays(x[:300], y[:300], x[300:], y[300:], name="lines")
    assert data.predictions == 12
    assert chunks(len(data.test), data.predictions) == [(0, 666), (666, 1300)]
    held = fedquilt.iid(data.train.y.numpy(), clients=2, seed=1)
    found = []
    for engine in (fedquilt.inline(), fedquilt.processes(workers=2)):
        method = fedquilt.fed_avg(lr=1.0, fraction=1.0, batch=50)
        trained = fedquilt.train(small(), data, held, method, rounds=2, engine=engine)
        found.append([(record["accuracy"], record["loss"]) for record in trained.history])
    assert found[0] == found[1]
    numbers = fedquilt.arrays(x[:300], y[:300].astype(np.float32), x[300:], y[300:].astype(np.float32), classes=0)
    assert numbers.predictions == 1, "a loss is one of the whole example"


@pytest.mark.parametrize("partitioner", [fedquilt.shards, lambda y, clients: fedquilt.dirichlet(y, clients, alpha=1.0)])
def test_partitions_by_class_need_one_class_an_example(partitioner, lines):
    with pytest.raises(SpecError, match="needs one class per example"):
        partitioner(lines.train.y.numpy(), clients=5)
