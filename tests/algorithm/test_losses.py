"""What a run minimises: numbers as targets, losses of one's own, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedquilt
from fedquilt.algorithm import cross_entropy, mean_squared_error
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.loss import with_loss
from fedquilt.base import registry
from fedquilt.base.errors import DataError, FedquiltError
from fedquilt.base.records import describe
from fedquilt.data.data import Data
from fedquilt.partition.partition import Partition

TRUE = np.array([1.0, -2.0, 0.5])


@pytest.fixture(scope="module")
def line() -> Data:
    """A linear function of three numbers, without noise."""
    x = np.random.default_rng(0).normal(size=(260, 3))
    y = x @ TRUE + 0.25
    return fedquilt.arrays(x[:200], y[:200], x[200:], y[200:], classes=0, name="line")


@pytest.fixture(scope="module")
def held() -> Partition:
    return Partition.by_sizes(np.arange(200), np.array([5, 95, 17, 43, 40]))


def zero(outputs: int = 1) -> nn.Module:
    module = nn.Linear(3, outputs)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return module


def learnt(data: Data, held: Partition, engine: object, loss: object = "mean_squared_error") -> fedquilt.Result:
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0)
    return fedquilt.train(zero(), data, held, method, 20, engine=engine, loss=loss)  # type: ignore[arg-type]


def test_regression_finds_the_line_whatever_the_engine(line: Data, held: Partition, compiler: None) -> None:
    results = {
        "inline": learnt(line, held, fedquilt.inline()),
        "processes": learnt(line, held, fedquilt.processes(workers=2)),
        "vectorised": learnt(line, held, fedquilt.vectorised(block=3, workers=2)),
        "compiled": learnt(line, held, fedquilt.vectorised(block=3, workers=1, compute="compiled")),
    }
    for name, result in results.items():
        assert torch.allclose(result.model.get_parameter("weight")[0], torch.tensor(TRUE).float(), atol=1e-3), name
        assert result.history.loss[-1] < 1e-5
        assert result.history.accuracy == []
        assert result.history.best is None
        lowest = min(result.history.loss)
        assert result.history.lowest == (result.history.loss.index(lowest) + 1, lowest)
        assert repr(result).startswith("Result(20 rounds, loss 0.0000")
    assert results["inline"].digest == results["processes"].digest


def test_the_first_step_is_the_gradient_of_the_mean_square(line: Data) -> None:
    """At 0, with all data in one batch, a step of rate η is 2η·mean(y·x), and 2η·mean(y) for the bias."""
    method = fedquilt.fed_sgd(lr=0.05, fraction=1.0)
    everything = Partition.of([np.arange(200)])
    result = fedquilt.train(zero(), line, everything, method, 1, engine=fedquilt.inline(), loss="mean_squared_error")
    x, y = line.train.x.double(), line.train.y.double()
    assert torch.allclose(result.model.get_parameter("weight")[0].double(), 0.1 * (y[:, None] * x).mean(0), atol=1e-6)
    assert result.model.get_parameter("bias").item() == pytest.approx(0.1 * float(y.mean()), abs=1e-6)


@pytest.mark.parametrize("outputs", [(4,), (4, 1)])
def test_one_target_an_example_fits_both_shapes(outputs: tuple[int, ...]) -> None:
    loss, targets = mean_squared_error(), torch.tensor([1.0, 0.0, 0.0, 3.0])
    assert loss(torch.zeros(outputs), targets) == 2.5
    assert loss.each(torch.zeros(outputs), targets)[0].tolist() == [1.0, 0.0, 0.0, 9.0]
    with pytest.raises(ValueError, match=r"it returns \(4, 2\) for targets of \(4,\)"):
        loss(torch.zeros(4, 2), targets)


def test_several_targets_an_example(held: Partition) -> None:
    x = np.random.default_rng(1).normal(size=(200, 3))
    y = np.stack([x.sum(axis=1), x[:, 0]], axis=1)
    data = fedquilt.arrays(x, y, x[:50], y[:50], classes=0)
    method, loss = fedquilt.fed_avg(lr=0.1, fraction=1.0), "mean_squared_error"
    results = [
        fedquilt.train(zero(2), data, held, method, 15, engine=engine, loss=loss)
        for engine in (fedquilt.inline(), fedquilt.vectorised(block=2, workers=1))
    ]
    assert all(result.history.loss[-1] < 1e-3 for result in results)
    outputs = results[0].model(data.test.x).detach()
    assert results[0].history.loss[-1] == pytest.approx(float(functional.mse_loss(outputs, data.test.y)), rel=1e-5)


# Losses of one's own


def plain(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(fedquilt.inline(), id="inline"),
        pytest.param(fedquilt.vectorised(workers=1), id="vectorised"),
        pytest.param(fedquilt.inline(compute="compiled"), id="compiled", marks=pytest.mark.thorough),
    ],
)
def test_an_own_loss_is_as_good_as_a_built_in_one(
    blobs: Data, unbalanced: Partition, smooth: nn.Module, engine: object
) -> None:
    method = fedquilt.fed_ir(fedquilt.fed_avg(fraction=1.0))
    results = [
        fedquilt.train(smooth, blobs, unbalanced, method, 3, engine=engine, loss=loss)  # type: ignore[arg-type]
        for loss in (plain, None)
    ]
    assert torch.allclose(results[0].state.vector, results[1].state.vector, atol=1e-5)
    assert results[0].history.loss == pytest.approx(results[1].history.loss, rel=1e-5)


def test_an_own_loss_does_not_count_padding() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(6, size=(30, 5)), rng.integers(6, size=(30, 5))
    y[:, 3:] = -100
    data = fedquilt.arrays(x[:20], y[:20], x[20:], y[20:], classes=6)

    def own(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.flatten(0, 1), targets.clamp(min=0).flatten(), reduction="none").view(
            targets.shape
        )

    found = []
    for loss in (own, "cross_entropy"):
        torch.manual_seed(0)
        model, split = nn.Embedding(6, 6), fedquilt.iid(y[:20], 4)
        found.append(fedquilt.train(model, data, split, fedquilt.fed_avg(), 2, engine=fedquilt.inline(), loss=loss))
    assert found[0].history.loss == pytest.approx(found[1].history.loss, rel=1e-6)


@pytest.mark.parametrize("name", list(registry.wrappers))
def test_the_loss_is_exchanged_wherever_a_wrapper_trains(name: str) -> None:
    wrapped = registry.wrappers[name](fedquilt.fed_avg(batch=16))
    assert "losses._cross_entropies" in describe(wrapped)
    changed = with_loss(wrapped, mean_squared_error())
    assert "losses._squared" in describe(changed)
    assert "losses._cross_entropies" not in describe(changed)
    assert describe(with_loss(changed, cross_entropy())) == describe(wrapped), "nothing else is changed"


# What is refused


def half(outputs: Tensor, targets: Tensor) -> Tensor:
    return plain(outputs, targets).mean()


def unfinished(outputs: Tensor, targets: Tensor) -> None:
    return None


def broken(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs @ targets


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("cross_entropi", r"loss: no loss is called 'cross_entropi'; did you mean 'cross_entropy'\?"),
        ("mean_squared_error", r"loss: mean_squared_error is for numbers, and these targets are classes"),
        (half, r"loss: half must return one loss per prediction, a tensor of shape \(1,\) .*it returned .* shape \(\)"),
        (unfinished, r"loss: unfinished must return one loss per prediction, .* type NoneType"),
        (broken, r"the model does not fit the data set blobs .*RuntimeError: .*\(test_losses.py, line \d+\)"),
        (0.5, r"loss: must be a name or a function of outputs and targets, got 0\.5"),
    ],
)
def test_wrong_losses_are_refused(
    blobs: Data, unbalanced: Partition, smooth: nn.Module, loss: object, message: str
) -> None:
    with pytest.raises(FedquiltError, match=message):
        fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.inline(), loss=loss)  # type: ignore[arg-type]


def test_cross_entropy_on_numbers_is_refused(line: Data, held: Partition) -> None:
    with pytest.raises(FedquiltError, match='these targets are numbers: use "mean_squared_error"'):
        fedquilt.train(zero(), line, held, fedquilt.fed_avg(), 1, engine=fedquilt.inline())


@pytest.mark.parametrize(
    ("method", "simulate", "message"),
    [
        (
            fedquilt.fed_ir(fedquilt.fed_avg()),
            [],
            "fed_ir weighs examples by their class: the targets of line are numbers",
        ),
        (fedquilt.fed_avg(), [fedquilt.corrupt(kind="label_flip")], "line has numbers as targets"),
        (fedquilt.server_training(fedquilt.fed_avg()), [], "share needs one class label per example"),
        (fedquilt.fed_avg(), [fedquilt.availability()], "needs one label per example, but these are numbers"),
    ],
)
def test_what_needs_classes_refuses_numbers(
    line: Data, held: Partition, method: Algorithm, simulate: list[fedquilt.Simulation], message: str
) -> None:
    options = {"engine": fedquilt.inline(), "loss": "mean_squared_error", "simulate": simulate}
    with pytest.raises(FedquiltError, match=message):
        fedquilt.train(zero(), line, held, method, 1, **options)  # type: ignore[arg-type]


def test_accuracy_of_numbers_is_refused(line: Data, held: Partition) -> None:
    with pytest.raises(FedquiltError, match="accuracy needs classes; the data set line has none: its targets are"):
        fedquilt.train(zero(), line, held, fedquilt.fed_avg(), 1, loss="mean_squared_error", metrics=["accuracy"])


def test_other_methods_take_numbers(line: Data, held: Partition) -> None:
    """Clients' own models, groups and diagnosis go without classes."""
    ditto = fedquilt.ditto(fedquilt.scaffold(fedquilt.fed_avg(fraction=1.0, lr=0.05)), lr=0.05)
    result = fedquilt.train(
        zero(), line, held, ditto, 5, engine=fedquilt.inline(), loss="mean_squared_error", diagnose=True
    )
    assert result.history.loss[-1] < result.history.loss[0]
    assert result.history.records[-1]["per_client_accuracy"] is None
    assert "conflict_rate" not in result.history.records[-1]
    assert "divergence" in result.history.records[-1]


# Data with numbers as targets


def test_numbers_become_single_precision_and_a_column_a_row() -> None:
    x = np.zeros((3, 2))
    data = fedquilt.arrays(x, np.array([[1.0], [2.0], [3.0]]), x, np.array([4, 5, 6]), classes=0)
    assert data.train.y.tolist() == [1.0, 2.0, 3.0]
    assert data.test.y.dtype == torch.float32
    assert repr(data) == "Data(arrays: 3 to train, 3 to test, numbers as targets)"


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.array([0.0, np.nan]), "y_train: a target is not finite"),
        (np.zeros((2, 3, 4)), r"y_train: targets must be numbers, one or several per example, got the shape"),
        (np.zeros((2, 3)), r"y_train has targets of shape \(3,\), y_test of \(\)"),
        (np.array([1j, 2j]), "y_train: targets must be numbers, .*complex"),
    ],
)
def test_wrong_targets_are_refused(targets: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fedquilt.arrays(np.zeros((2, 1)), targets, np.zeros((2, 1)), np.zeros(2), classes=0)


def test_numbers_for_classes_are_refused_with_the_way_out() -> None:
    with pytest.raises(DataError, match=r"labels must be integers, got torch\.float64; .* pass classes=0"):
        fedquilt.arrays(np.zeros((2, 1)), np.zeros(2), np.zeros((2, 1)), np.zeros(2))
