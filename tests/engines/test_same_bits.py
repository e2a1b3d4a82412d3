"""One spec and one seed give one digest: in every engine, with any number of workers, in any order of arrival."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
import torch

import fedquilt
from fedquilt.algorithm.updates import Answer, ClientUpdate
from fedquilt.models import mnist_2nn, mnist_cnn
from fedquilt.round.session import Engine, Session


@dataclass(frozen=True)
class Shuffled:
    """An engine whose results arrive in another order."""

    inner: Engine
    seed: int

    @contextmanager
    def open(self, federation):
        with self.inner.open(federation) as session:
            yield ShuffledSession(session, random.Random(self.seed))


@dataclass(frozen=True)
class ShuffledSession:
    session: Session
    rng: random.Random

    def run(self, planned, model, store) -> Iterator[Answer]:
        results = [_kept(result) for result in self.session.run(planned, model, store)]
        self.rng.shuffle(results)
        yield from results

    def evaluate(self, model, split):
        return self.session.evaluate(model, split)


def _kept(result):
    if not isinstance(result, ClientUpdate):
        return result
    return replace(result, delta=result.delta.clone(), buffers=result.buffers.clone(), counters=result.counters.clone())


ENGINES = {
    "processes, 1 worker": fedquilt.processes(workers=1),
    "processes, 2 workers": fedquilt.processes(workers=2),
    "processes, 4 workers": fedquilt.processes(workers=4),
    "shuffled inline": Shuffled(fedquilt.inline(), 3),
    "shuffled processes": Shuffled(fedquilt.processes(workers=2), 4),
}
METHODS = {
    "fed_avg": fedquilt.fed_avg(lr=0.1, fraction=0.06, batch=10),
    "fed_avg_m": fedquilt.fed_avg_m(lr=0.1, fraction=0.06, batch=10, server_momentum=0.9),
}
MODELS = {"2nn": mnist_2nn, "cnn": mnist_cnn}
PAIRS = [("fed_avg", "2nn"), ("fed_avg_m", "cnn")]


@pytest.fixture(scope="module")
def digits():
    return fedquilt.mnist_5k()


@pytest.fixture(scope="module")
def reference(digits):
    """The result of the inline engine, computed once for every method and model."""
    known = {}

    def of(method, model):
        if (method, model) not in known:
            known[method, model] = outcome(digits, method, model, fedquilt.inline())
        return known[method, model]

    return of


def outcome(digits, method, model, engine):
    partition = fedquilt.dirichlet(digits.train.y.numpy(), clients=100, alpha=0.5, seed=2)
    torch.manual_seed(0)
    result = fedquilt.train(MODELS[model](), digits, partition, METHODS[method], rounds=2, seed=7, engine=engine)
    records = [{key: value for key, value in record.items() if key != "seconds"} for record in result.history]
    return result.digest, records


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("method", "model"), PAIRS)
def test_the_digest_and_the_metrics_are_those_of_the_inline_engine(method, model, engine, digits, reference):
    assert outcome(digits, method, model, ENGINES[engine]) == reference(method, model)


def test_another_seed_gives_another_model(blobs, unbalanced, smooth):
    digests = {
        fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(fraction=0.5), rounds=2, seed=seed).digest
        for seed in range(3)
    }
    assert len(digests) == 3


def test_settings_of_torch_do_not_change_the_bits_and_come_back(blobs, unbalanced, smooth):
    def digest():
        method = fedquilt.fed_avg(fraction=0.5)
        return fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=fedquilt.inline()).digest

    expected = digest()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.set_float32_matmul_precision("medium")
        assert digest() == expected
        assert torch.get_num_threads() == 2
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")


def test_the_callers_random_state_is_left_alone(blobs, unbalanced, smooth):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(fraction=0.5), rounds=1, engine=fedquilt.inline())
    assert torch.equal(torch.rand(2), expected)
