"""What a run measures: closed forms, exact sums, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import fedquilt
from fedquilt.algorithm.metric import Metric
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.base.registry import metrics as known
from fedquilt.data.data import Data
from fedquilt.experiment.objective import chosen_metrics
from fedquilt.partition.partition import Partition
from fedquilt.round.evaluation import Counted, added, combine, evaluate_chunk
from fedquilt.round.federation import Federation

seeds = st.integers(0, 2**32 - 1)


def measured(name: str, outputs: Tensor, targets: Tensor) -> float:
    metric: Metric = known[name]()  # type: ignore[assignment]
    return metric.finished(metric.total(outputs, targets) / len(targets))


@given(seeds, st.integers(5, 12), st.integers(1, 40))
def test_metrics_are_what_their_definitions_say(seed: int, classes: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(classes), (rows, 1)), axis=1).astype(np.float32)
    labels = rng.integers(classes, size=rows)
    outputs, targets = torch.from_numpy(scores), torch.from_numpy(labels)
    rank = classes - 1 - scores[np.arange(rows), labels]  # 0: the largest score
    assert measured("accuracy", outputs, targets) == (rank == 0).mean()
    assert measured("error", outputs, targets) == (rank > 0).mean()
    assert measured("top5", outputs, targets) == (rank < 5).mean()
    shares = np.exp(scores.astype(np.float64))
    shares = shares[np.arange(rows), labels] / shares.sum(axis=1)
    assert measured("perplexity", outputs, targets) == pytest.approx(np.exp(-np.log(shares).mean()), rel=1e-5)


def test_a_hopeless_model_has_an_infinite_perplexity() -> None:
    assert measured("perplexity", torch.tensor([[0.0, 1e5]]), torch.tensor([0])) == math.inf


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), seeds)
def test_sums_of_chunks_do_not_depend_on_their_order(values: list[float], seed: int) -> None:
    parts = [Counted(value, 1, 3, [value / 3, -value]) for value in values]
    shuffled = [parts[place] for place in np.random.default_rng(seed).permutation(len(parts))]
    assert added(parts) == added(shuffled)
    assert added(parts).sums[0] == math.fsum(value / 3 for value in values)


def test_a_sum_that_leaves_its_range_is_no_crash() -> None:
    total = added([Counted(1e308, None, 1, [math.inf]), Counted(1e308, None, 1, [-math.inf])])
    assert math.isnan(total.loss)
    assert math.isnan(total.sums[0])
    assert combine([Counted(1.0, None, 2)]).accuracy is None


def test_chunks_add_up_to_the_whole(blobs: Data, federate: Callable[..., Federation]) -> None:
    federation = federate(fedquilt.fed_avg())
    metrics = chosen_metrics(["accuracy", "error", "perplexity"])
    loss, model = federation.algorithm.loss, federation.initial
    cuts = [0, 7, 50, 90]
    parts = [
        evaluate_chunk(federation.replica, loss, model, blobs, blobs.test, rows, metrics) for rows in pairwise(cuts)
    ]
    found = combine(parts, metrics)
    outputs = federation.replica.finished(model)(blobs.test.x).detach()
    assert found.accuracy == measured("accuracy", outputs, blobs.test.y)
    assert found.metrics["error"] == measured("error", outputs, blobs.test.y)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(found.loss), rel=1e-6)


ENGINES = [
    fedquilt.inline(),
    fedquilt.processes(workers=1),
    fedquilt.processes(workers=3),
    fedquilt.processes(workers=1, start="spawn"),
]


def test_every_engine_measures_the_same(blobs: Data, unbalanced: Partition, smooth: nn.Module) -> None:
    found = []
    for engine in ENGINES:
        chosen = ["accuracy", "error", "perplexity"]
        result = fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), 2, engine=engine, metrics=chosen)
        found.append([{key: record[key] for key in ("accuracy", "loss", "metrics")} for record in result.history])
    assert found[1:] == found[:1] * 3
    assert list(found[0][0]["metrics"]) == ["error", "perplexity"]


def test_metrics_do_not_change_the_model(blobs: Data, unbalanced: Partition, smooth: nn.Module) -> None:
    def digest(**arguments: object) -> str:
        chosen = {"engine": fedquilt.inline(), **arguments}
        return fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), 2, **chosen).digest  # type: ignore[arg-type]

    assert digest() == digest(metrics=["perplexity"]) == digest(metrics=[]) == digest(loss="cross_entropy")


def test_own_metrics_see_no_padding() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(6, size=(30, 5)), rng.integers(6, size=(30, 5))
    y[:, 3:] = -100
    data = fedquilt.arrays(x[:20], y[:20], x[20:], y[20:], classes=6)

    def hundred(outputs: Tensor, targets: Tensor) -> Tensor:
        assert outputs.shape == (len(targets), 6)
        return targets < 0

    result = fedquilt.train(
        nn.Embedding(6, 6),
        data,
        fedquilt.iid(y[:20], 4),
        fedquilt.fed_avg(),
        1,
        engine=fedquilt.inline(),
        metrics=[hundred],
    )
    assert result.history.records[0]["metrics"] == {"hundred": 0.0}


# What is refused


def scalar(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.mean()


def number(outputs: Tensor, targets: Tensor) -> float:
    return 0.5


def broken(outputs: Tensor, targets: Tensor) -> Tensor:
    raise ZeroDivisionError("no margin")


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs[:, 0]


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs[:, 0]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (
            ["acuracy"],
            r"metrics: no metric is called 'acuracy'; did you mean 'accuracy'\? \(known: accuracy, error, .*own",
        ),
        (["accuracy", "top5"], r"metrics: top5 needs at least 5 classes; the data set blobs has 3"),
        (
            [scalar],
            r"metrics: scalar must return a tensor with one value per prediction, of shape \(1,\); .* shape \(\)",
        ),
        ([number], r"metrics: number must return a tensor with .* type float"),
        ([broken], r"metrics: broken failed: ZeroDivisionError: no margin \(test_metrics.py, line \d+\)"),
        (["error", "error"], r"metrics: there is another 'error'"),
        ([accuracy], r"metrics: there is another 'accuracy'"),
        ([loss], r"metrics: there is another 'loss'"),
        ([3], r"metrics: must be a name or a function of outputs and targets, got 3"),
        (["no_such_module:margin"], r"metrics: cannot import 'no_such_module'"),
        (["math:margin"], r"metrics: 'math' has no 'margin'"),
        (
            [Metric("root", lambda outputs, targets: -torch.ones(len(targets)), math.sqrt)],
            r"metrics: root failed on the",
        ),
    ],
)
def test_wrong_metrics_are_refused(
    blobs: Data, unbalanced: Partition, smooth: nn.Module, metrics: list[Any], message: str
) -> None:
    with pytest.raises(FedquiltError, match=message):
        fedquilt.train(
            smooth, blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.processes(workers=1), metrics=metrics
        )


def test_top5_with_five_classes_is_measured() -> None:
    x, y = np.eye(5, dtype=np.float32).repeat(4, axis=0), np.arange(5).repeat(4)
    result = fedquilt.train(
        nn.Linear(5, 5), fedquilt.arrays(x, y, x, y), fedquilt.iid(y, 2), fedquilt.fed_avg(), 1, engine=fedquilt.inline(),
        metrics=["top5"],
    )  # fmt: skip
    assert result.history.records[0]["metrics"] == {"top5": 1.0}


def test_stopping_at_an_accuracy_that_is_not_measured_is_refused(
    blobs: Data, unbalanced: Partition, smooth: nn.Module
) -> None:
    with pytest.raises(SpecError, match="stop_at: is an accuracy, which this run does not measure"):
        fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), 1, metrics=["error"], stop_at=0.5)


def odd(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.full((len(targets),), torch.nan)


def test_a_metric_that_is_not_finite_is_null_with_one_warning(
    blobs: Data, unbalanced: Partition, smooth: nn.Module, tmp_path: Path
) -> None:
    with pytest.warns(RuntimeWarning, match="metric odd is not finite after round 1") as seen:
        result = fedquilt.train(
            smooth,
            blobs,
            unbalanced,
            fedquilt.fed_avg(),
            3,
            engine=fedquilt.inline(),
            metrics=[odd],
            out=tmp_path / "run",
        )
    assert len(seen) == 1
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["metrics"] for line in lines] == [{"odd": None}] * 3
    assert result.history.curve("odd") == ([], [])
    assert fedquilt.summary(tmp_path / "run")["metrics"] == {"odd": None}
