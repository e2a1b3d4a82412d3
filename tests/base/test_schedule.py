"""Values that change over rounds (McMahan 2017, §3), from Python and from specs."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

import fedquilt
from fedquilt.algorithm.parts.sampling import Epochs
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.schedule import Schedule, Stages, scheduled
from fedquilt.experiment.changes import put
from fedquilt.experiment.spec import check_spec


def test_decay_in_steps_with_a_floor():
    value = Schedule(8.0, factor=0.5, every=2, least=3.0)
    assert [value(round_) for round_ in range(1, 8)] == [8, 8, 4, 4, 3, 3, 3]


def test_growth_with_a_ceiling():
    assert [Schedule(10, factor=2, most=64)(round_) for round_ in (1, 2, 3, 4, 10_000)] == [10, 20, 40, 64, 64]


def test_a_decay_over_very_many_rounds_is_no_overflow():
    assert Schedule(0.1, factor=0.5)(10**6) == 0
    assert Schedule(0.1, factor=2.0, most=5.0)(10**6) == 5.0


def test_stages():
    assert [scheduled({"stages": [[1, 0.1], [5, 0.01]]})(round_) for round_ in (1, 4, 5, 100)] == [0.1, 0.1, 0.01, 0.01]


@pytest.mark.parametrize("stages", [[], [[2, 0.1]], [[1, 0.1], [1, 0.2]], [[1, 0.0]], [[1, 0.1], [5, 0.2], [3, 0.1]]])
def test_stages_that_make_no_sense(stages):
    with pytest.raises(ValueError, match="stages must be pairs"):
        Stages(tuple((first, value) for first, value in stages))


def test_epochs_and_batches_follow_the_round():
    sample = Epochs(Schedule(4, factor=0.5, least=1), Schedule(5, factor=2))
    rng = np.random.default_rng(0)
    steps = [len(sample(20, rng, round_).cuts) - 1 for round_ in (1, 2, 3, 4)]
    assert steps == [4 * 4, 2 * 2, 1 * 1, 1]  # E = 4, 2, 1, 1; B = 5, 10, 20, 40


def test_a_run_takes_fewer_steps_as_e_shrinks_and_b_grows(blobs, unbalanced, smooth):
    method = fedquilt.fed_avg(
        fraction=1.0, epochs={"stages": [[1, 2], [3, 1]]}, batch={"initial": 10, "factor": 100, "every": 3}
    )
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=4, engine=fedquilt.inline())
    batches = sum(-(-int(size) // 10) for size in unbalanced.sizes)
    assert [record["steps"] for record in result.history] == [2 * batches, 2 * batches, batches, 6]


def test_rates_change_at_client_and_server(blobs, unbalanced, smooth):
    """A rate that is cut to next to nothing in round 2 leaves the model where it was."""
    for key in ("lr", "server_lr"):
        method = fedquilt.fed_avg_m(fraction=1.0, server_momentum=0.0, **{key: {"initial": 0.5, "factor": 1e-9}})
        vectors = [
            fedquilt.train(smooth, blobs, unbalanced, method, rounds=n, engine=fedquilt.inline()).state.vector
            for n in (1, 2)
        ]
        assert (vectors[0] - vectors[1]).abs().max() < 1e-6


SPEC = """
[run]
rounds = 2
[data]
name = "digits"
[partition]
name = "iid"
clients = 4
[model]
name = "softmax_regression"
inputs = 64
[method]
name = "fed_avg_m"
lr = { initial = 0.1, factor = 0.99, least = 0.01 }
server_lr = { stages = [[1, 1.0], [50, 0.1]] }
epochs = { initial = 5, factor = 0.9, least = 1 }
batch = { initial = 10, factor = 1.1 }
[[wrap]]
name = "fed_prox"
"""


def test_specs_take_tables_and_keep_them():
    spec = check_spec(tomllib.loads(SPEC))
    again = check_spec(tomllib.loads(spec.to_toml()))
    assert again.parts["method"].arguments == spec.parts["method"].arguments
    assert spec.parts["method"].arguments["lr"] == {"initial": 0.1, "factor": 0.99, "least": 0.01}


def test_sets_reach_into_tables_and_wrappers():
    tables = tomllib.loads(SPEC)
    put(tables, "method.lr.initial", 0.5)
    put(tables, "wrap.1.mu", 0.7)
    assert tables["method"]["lr"] == {"initial": 0.5, "factor": 0.99, "least": 0.01}
    assert tables["wrap"] == [{"name": "fed_prox", "mu": 0.7}]
    with pytest.raises(fedquilt.FedquiltError, match=r"the spec has 1 \[\[wrap\]\] tables"):
        put(tables, "wrap.2.mu", 0.7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lr", {"initial": -0.1}),
        ("lr", {"initial": 0.1, "factor": 0}),
        ("lr", {"stages": [[1, -0.1]]}),
        ("lr", {"stages": "often"}),
        ("epochs", {"stages": [[1, 1.5]]}),
        ("batch", {"initial": 0}),
        ("lr", {}),
    ],
)
def test_tables_that_make_no_sense_are_refused(key, value):
    with pytest.raises(ArgumentError, match=f"fed_avg: {key}: "):
        fedquilt.fed_avg(**{key: value})
