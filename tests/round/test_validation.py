"""Examples held out of clients' training data: which ones, and that nothing else sees them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedquilt
from fedquilt.base.errors import SpecError
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.validation import Validation

METHOD = fedquilt.fed_avg(fraction=1.0, batch=8, lr=0.1)

sizes = st.lists(st.integers(0, 30), min_size=1, max_size=20).filter(lambda each: sum(each) > 20)


def held_by(counts):
    rows = np.random.default_rng(0).permutation(sum(counts))
    return Partition.by_sizes(rows, np.asarray(counts, dtype=np.int64))


@given(counts=sizes, share=st.floats(0.1, 0.9), seed=st.integers(0, 5))
def test_a_share_of_every_client_is_held_out(counts, share, seed):
    held = held_by(counts)
    left, out = Validation(share).hold_out(held, seed)
    assert sorted([*left.indices.tolist(), *out.tolist()]) == sorted(held.indices.tolist())
    for client, size in enumerate(counts):
        assert set(left.client(client)) <= set(held.client(client))
        lost = size - left.size(client)
        assert abs(lost - share * size) <= 1 or left.size(client) == 1  # within one example of its share
        assert left.size(client) >= min(size, 1)
    again = Validation(share).hold_out(held, seed)
    assert again[1].tolist() == out.tolist()


@given(counts=sizes, folds=st.integers(2, 6), seed=st.integers(0, 5))
def test_every_example_is_in_one_fold(counts, folds, seed):
    """But for the only example of a client, which is in none."""
    held = held_by(counts)
    outs = [Validation(folds=folds, fold=fold).hold_out(held, seed)[1].tolist() for fold in range(folds)]
    alone = {int(held.client(client)[0]) for client, size in enumerate(counts) if size == 1}
    assert sorted(row for out in outs for row in out) == sorted({*held.indices.tolist()} - alone)


def test_another_seed_holds_out_others(unbalanced):
    one, other = (Validation(0.2).hold_out(unbalanced, seed)[1].tolist() for seed in (1, 2))
    assert one != other


def test_what_two_clients_hold_is_trained_on_by_neither():
    shared = Partition.of([[*range(10)], [*range(5, 15)]])
    left, out = Validation(0.3).hold_out(shared, 1)
    assert not set(left.indices.tolist()) & set(out.tolist())


@pytest.mark.parametrize("options", [{"validation": 0.2}, {"folds": 4, "fold": 1}])
@pytest.mark.parametrize("engine", [fedquilt.inline(), fedquilt.processes(workers=2), fedquilt.vectorised(workers=2)])
def test_training_is_that_on_what_is_left_and_measured_on_what_is_not(options, engine, blobs, unbalanced, smooth):
    """The same model as on a partition without the examples; accuracy and loss by hand."""
    given_ = {"rounds": 3, "seed": 5, "engine": engine}
    result = fedquilt.train(smooth, blobs, unbalanced, METHOD, **given_, train_loss=True, **options)
    left, out = Validation.asked(options.get("validation"), options.get("folds"), options.get("fold")).hold_out(
        unbalanced, 5
    )
    plain = fedquilt.train(smooth, blobs, left, METHOD, **given_)
    assert plain.digest == result.digest
    record = result.history.records[-1]
    assert record["examples"] == len(left.indices)
    x, y = blobs.train.x[out], blobs.train.y[out]
    scores = result.model(x)
    assert record["validation_accuracy"] == pytest.approx(float((scores.argmax(1) == y).double().mean()))
    assert record["validation_loss"] == pytest.approx(nn.functional.cross_entropy(scores, y).item(), rel=1e-5)
    rest = torch.from_numpy(left.indices.astype(np.int64))
    trained_on = nn.functional.cross_entropy(result.model(blobs.train.x[rest]), blobs.train.y[rest]).item()
    assert record["train_loss"] == pytest.approx(trained_on, rel=1e-5)
    assert "validation_loss" not in plain.history.records[-1]
    assert result.history.curve("validation_accuracy")[0] == [1, 2, 3]


def test_every_method_holds_out_the_same(blobs, unbalanced, smooth):
    """The pooled baseline and those who take further examples away too: relative accuracy compares like with like."""
    methods = [
        METHOD,
        fedquilt.centralised(),
        fedquilt.server_training(METHOD, share=0.1),
        fedquilt.own_test(METHOD, holdout=0.3),
        fedquilt.fl_hc(METHOD, rounds=1),
    ]
    made = [Federation.of(smooth, blobs, unbalanced, each, 3, validation=Validation(0.2)) for each in methods]
    for federation in made:
        assert federation.validation_rows.tolist() == made[0].validation_rows.tolist()
        kept = {*federation.partition.indices.tolist(), *federation.server_rows.tolist()}
        assert not kept & {*federation.validation_rows.tolist()}


def test_it_is_null_where_the_round_is_not_evaluated(blobs, unbalanced, smooth):
    result = fedquilt.train(
        smooth, blobs, unbalanced, METHOD, rounds=3, eval_every=2, validation=0.1, engine=fedquilt.inline()
    )
    assert [record["validation_accuracy"] is None for record in result.history] == [True, False, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 0.1, "folds": 3, "fold": 0}, "validation = 0.1 and folds = 3 both hold examples out"),
        ({"folds": 3}, "folds = 3: which one is held out? Say it with fold, from 0 to 2"),
        ({"fold": 1}, "fold = 1: of how many? Say it with folds"),
        ({"folds": 3, "fold": 3}, "fold: must be below folds = 3"),
        ({"validation": 1e-6}, "validation = 1e-06: holds out none of the 240 examples that clients have"),
    ],
)
def test_mistakes_are_answered_in_words(options, message, blobs, unbalanced, smooth):
    with pytest.raises(SpecError) as caught:
        fedquilt.train(smooth, blobs, unbalanced, METHOD, rounds=1, engine=fedquilt.inline(), **options)
    assert message in str(caught.value)


def test_on_the_command_line(command):
    held_out = ("--set", "run.folds=5", "--set", "run.fold=2")
    assert command("run", "spec.toml", "--out", "out", *held_out).code == 0
    answer = command("evaluate", "out", "--split", "validation", "--json")
    assert answer.code == 0
    history = fedquilt.summary("out")
    assert f'"accuracy": {history["validation_accuracy"]}' in answer.out
    wrong = command("run", "spec.toml", "--set", "run.folds=5")
    assert wrong.code == 2
    assert "spec.toml: [run] folds = 5: which one is held out?" in wrong.err
    command("run", "spec.toml", "--out", "plain")
    assert (
        "the run holds no examples out ([run] validation or folds)"
        in command("evaluate", "plain", "--split", "validation").err
    )
    assert (
        "do not pass other data with it" in command("evaluate", "out", "--split", "validation", "--data", "digits").err
    )
