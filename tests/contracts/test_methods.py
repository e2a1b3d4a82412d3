"""What every registered method must keep, tested for each of them automatically."""

from __future__ import annotations

import copy

import pytest
import torch

import fedquilt
from fedquilt import registry
from fedquilt.experiment.folder import RunFolder

METHODS = list(registry.methods)


class StopError(Exception):
    """Raised in the middle of a run, as a crash would."""


class StopAfter:
    def __init__(self, round_):
        self.last = round_

    def begin(self, history, last):
        pass

    def heard(self, clients, total):
        pass

    def round(self, record):
        if record["round"] == self.last:
            raise StopError


def train(name, blobs, unbalanced, smooth, **options):
    method = registry.methods[name]()
    engine = options.pop("engine", fedquilt.inline())
    return fedquilt.train(smooth, blobs, unbalanced, method, rounds=4, engine=engine, **options)


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_same_bits_other_seed_other_bits(name, blobs, unbalanced, smooth):
    first = train(name, blobs, unbalanced, smooth, seed=1)
    assert first.digest == train(name, blobs, unbalanced, smooth, seed=1).digest
    assert first.digest != train(name, blobs, unbalanced, smooth, seed=2).digest


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_do_not_matter(name, workers, blobs, unbalanced, smooth):
    engine = fedquilt.processes(workers=workers)
    parallel = train(name, blobs, unbalanced, smooth, engine=engine)
    assert parallel.digest == train(name, blobs, unbalanced, smooth).digest


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_equals_an_uninterrupted_one(name, blobs, unbalanced, smooth, tmp_path):
    whole = train(name, blobs, unbalanced, smooth, out=tmp_path / "whole")
    with pytest.raises(StopError):
        train(name, blobs, unbalanced, smooth, out=tmp_path / "broken", watcher=StopAfter(2), checkpoint_seconds=0.0)
    resumed = train(name, blobs, unbalanced, smooth, out=tmp_path / "broken")
    assert resumed.digest == whole.digest
    assert _timeless(tmp_path / "whole") == _timeless(tmp_path / "broken")


@pytest.mark.parametrize("name", METHODS)
def test_what_is_given_is_not_changed(name, blobs, unbalanced, smooth):
    before = copy.deepcopy(smooth.state_dict())
    x, indices = blobs.train.x.clone(), unbalanced.indices.copy()
    train(name, blobs, unbalanced, smooth)
    assert all(torch.equal(before[key], value) for key, value in smooth.state_dict().items())
    assert torch.equal(blobs.train.x, x)
    assert (unbalanced.indices == indices).all()


def _timeless(path):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in RunFolder(path).history()]
