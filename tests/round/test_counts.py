"""What a round's record counts of the work that clients did: the largest client's batches, and all gradients."""

from __future__ import annotations

import math

import pytest

import fedquilt
from fedquilt.base.errors import FedquiltError
from fedquilt.experiment.records import read_record
from fedquilt.experiment.sealed import DamagedError, sealed_json

SIZES = (5, 100, 17, 60, 38, 20)
"""Of the clients of `unbalanced`."""


def trained(method, blobs, unbalanced, smooth, engine=None, rounds=2, **more):
    engine = engine or fedquilt.inline()
    return fedquilt.train(smooth, blobs, unbalanced, method, rounds=rounds, engine=engine, **more).history


@pytest.mark.parametrize("engine", [fedquilt.inline, fedquilt.processes, fedquilt.vectorised])
def test_the_largest_client_of_a_round_counts(engine, blobs, unbalanced, smooth):
    """E = 2 passes in batches of 8: a client of n examples runs 2·⌈n/8⌉ batches, and 2·n gradients."""
    method = fedquilt.fed_avg(cohort=3, epochs=2, batch=8)
    how = {} if engine is fedquilt.inline else {"workers": 2}
    history = trained(method, blobs, unbalanced, smooth, engine(**how), rounds=5)
    for record in history:
        sizes = [SIZES[client] for client in record["clients"]]
        assert record["batches"] == max(2 * math.ceil(n / 8) for n in sizes)
        assert record["gradients"] == sum(2 * n for n in sizes)
    totals = [sum(record["batches"] for record in history.records[:done]) for done in range(1, 6)]
    assert history.cumulative("batches") == ([1, 2, 3, 4, 5], totals)
    assert history.curve_along("batches") == (totals, history.accuracy)


def test_virtual_clients_all_run_as_many(blobs, unbalanced, smooth):
    for record in trained(fedquilt.fed_vc(fedquilt.fed_avg(cohort=30, batch=8), 32), blobs, unbalanced, smooth):
        assert (record["batches"], record["gradients"]) == (4, 30 * 32)


def test_baselines_count_too(blobs, unbalanced, smooth):
    pooled = trained(fedquilt.centralised(batch=50), blobs, unbalanced, smooth).records[0]
    assert (pooled["batches"], pooled["gradients"]) == (math.ceil(240 / 50), 240)
    alone = trained(fedquilt.local_only(batch=10, holdout=0.0), blobs, unbalanced, smooth).records[0]
    assert (alone["batches"], alone["gradients"]) == (10, 240)


@pytest.mark.parametrize("engine", [fedquilt.inline(), fedquilt.processes(workers=2)])
def test_a_second_model_of_the_clients_own_is_work(engine, blobs, unbalanced, smooth):
    """Ditto trains twice: here 1 pass in batches of 8 for all, 3 in batches of 4 for the client's own."""
    method = fedquilt.ditto(fedquilt.fed_avg(fraction=1.0, batch=8), epochs=3, batch=4, holdout=0.0)
    record = trained(method, blobs, unbalanced, smooth, engine, rounds=1).records[0]
    assert record["batches"] == math.ceil(100 / 8) + 3 * math.ceil(100 / 4)
    assert (record["gradients"], record["examples"]) == (4 * 240, 240)


def test_nobody_ran_a_batch_in_a_round_without_clients(blobs, unbalanced, smooth):
    gone = [fedquilt.dropout(0.999999)]
    history = trained(fedquilt.fed_avg(), blobs, unbalanced, smooth, simulate=gone)
    assert [(record["batches"], record["gradients"]) for record in history] == [(0, 0)] * 2


@pytest.mark.parametrize("key", ["batches", "gradients"])
@pytest.mark.parametrize("value", [-1, 1.5, "many", None, True])
def test_a_damaged_count_is_noticed(key, value, blobs, unbalanced, smooth):
    record = trained(fedquilt.fed_avg(), blobs, unbalanced, smooth, rounds=1).records[0]
    assert read_record(sealed_json(record).encode())[key] == record[key]
    with pytest.raises(DamagedError, match=key):
        read_record(sealed_json(record | {key: value}).encode())


def test_what_cannot_be_added_up_is_refused_in_words():
    history = fedquilt.History([{"round": 1, "accuracy": 0.5}])
    with pytest.raises(FedquiltError, match="'accuracy' is not counted in every round; known: batches, bytes_down"):
        history.cumulative("accuracy")
    with pytest.raises(FedquiltError, match="round 1 has no count of batches: an older version"):
        history.cumulative("batches")
