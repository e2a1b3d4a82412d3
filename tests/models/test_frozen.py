"""Training a part of a model: what is frozen stays, is not sent, and the rest learns as it would by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fedquilt
from fedquilt.base.errors import FedquiltError, RunError, SpecError
from fedquilt.data.data import Data
from fedquilt.models import mnist_cnn, mobilenet_v2, resnet20_fixup
from fedquilt.models.weights import layers, train_only
from fedquilt.partition.partition import Partition


def trained(module: nn.Module) -> list[str]:
    return [name for name, p in module.named_parameters() if p.requires_grad]


def test_the_last_layers_of_a_model() -> None:
    model = mnist_cnn()
    train_only(model, 2)
    assert len(trained(model)) == 4
    assert trained(model) == [name for name, _ in model.named_parameters()][-4:]


def test_all_layers_are_the_whole_model() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    train_only(model, 2)
    assert len(trained(model)) == 4


def test_a_layer_inside_another_counts_by_itself() -> None:
    model = resnet20_fixup()
    train_only(model, 1)
    assert trained(model) == [name for name, _ in model.named_parameters()][-2:]


@pytest.mark.parametrize("width", [0.35, 1.0])
@pytest.mark.parametrize("groups", [1, 8])
def test_the_last_two_layers_of_mobilenet_v2(width: float, groups: int) -> None:
    """Hsu 2020, §6.2: "only training the last two layers while freezing the network backbone"."""
    landmarks = mobilenet_v2(classes=7, width=width, groups=groups, bottleneck=64)
    train_only(landmarks, 2)
    assert trained(landmarks) == ["bottleneck.weight", "bottleneck.bias", "classifier.weight", "classifier.bias"]
    assert sum(p.numel() for p in landmarks.parameters() if p.requires_grad) == 1281 * 64 + 65 * 7
    species = mobilenet_v2(classes=7, width=width, groups=groups)
    train_only(species, 2)
    last = [f"features.18.{part}" for part in ("0.weight", "1.weight", "1.bias")]
    assert trained(species) == [*last, "classifier.weight", "classifier.bias"]


def test_mobilenet_v2_has_the_layers_of_its_table() -> None:
    """Sandler 2018, table 2: a convolution; a block of two, sixteen of three; a convolution; a classifier."""
    for bottleneck, more in ((None, 0), (64, 1)):
        model = mobilenet_v2(classes=7, width=0.35, bottleneck=bottleneck)
        found = layers(model)
        assert len(found) == 1 + 2 + 16 * 3 + 1 + 1 + more
        assert all(len(layer) == 2 for layer in found[:52]), "each convolution with its normalisation"
        train_only(model, len(found))
        assert len(trained(model)) == len(list(model.parameters()))


def test_what_has_no_matrix_goes_with_a_layer() -> None:
    model = resnet20_fixup()
    train_only(model, 3)
    own = [f"blocks.8.{name}" for name, p in model.get_submodule("blocks.8").named_parameters()]
    assert trained(model) == [*own, "classifier.weight", "classifier.bias"]
    train_only(model := resnet20_fixup(), 20)
    assert len(trained(model)) == len(list(model.parameters()))
    norms = nn.Sequential(nn.GroupNorm(1, 4), nn.GroupNorm(1, 4))
    assert layers(norms) == [["0", "1"]]
    assert layers(nn.Flatten()) == []


def test_parts_by_name() -> None:
    model = nn.ModuleDict({"body": nn.Linear(2, 2), "body2": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    train_only(model, ["body", "head.bias"])
    assert trained(model) == ["body.weight", "body.bias", "head.bias"]


def test_a_tied_parameter_is_trained_under_any_of_its_names() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "out": nn.Linear(3, 5, bias=False)})
    model["out"].weight = model["embed"].weight
    train_only(model, ["out"])
    assert trained(model) == ["embed.weight"]


@pytest.mark.parametrize(
    ("model", "trainable", "message"),
    [
        (nn.Sequential(nn.Linear(2, 2)), 2, "the last 2 layers are requested, but the model has 1"),
        (nn.ModuleDict({"head": nn.Linear(2, 2)}), ["haed"], r"no part called 'haed'; did you mean 'head'\?"),
        (nn.Linear(2, 2), ["wieght"], r"no part called 'wieght'; did you mean 'weight'\?"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)), 1, r"leaves out 1 \(BatchNorm1d\)"),
        (nn.Linear(2, 2).requires_grad_(False), 1, "frozen by the model"),
    ],
)
def test_what_cannot_be_done_is_refused(model: nn.Module, trainable: int | list[str], message: str) -> None:
    before = trained(model)
    with pytest.raises(SpecError, match=f"trainable: .*{message}"):
        train_only(model, trainable)
    assert trained(model) == before


# In training


ENGINES = {
    "inline": fedquilt.inline(),
    "processes": fedquilt.processes(workers=2),
    "spawned": fedquilt.processes(workers=1, start="spawn"),
    "vectorised": fedquilt.vectorised(block=4, workers=2),
    "compiled": fedquilt.vectorised(block=4, workers=1, compute="compiled"),
}
METHODS = {
    "fed_avg": fedquilt.fed_avg(lr=0.1, fraction=1.0),
    "scaffold": fedquilt.scaffold(fedquilt.fed_avg_m(lr=0.1, fraction=1.0)),
    "fed_avg_r": fedquilt.fed_avg_r(fedquilt.fed_avg(lr=0.1, fraction=1.0)),
}


@pytest.fixture
def deep() -> nn.Sequential:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 3))
    module.classifier_layer = "4"  # type: ignore[assignment]
    return module


def ran(
    module: nn.Module, blobs: Data, unbalanced: Partition, method: str, engine: str, trainable: int = 2
) -> fedquilt.Result:
    return fedquilt.train(module, blobs, unbalanced, METHODS[method], 3, engine=ENGINES[engine], trainable=trainable)


def stays_and_agrees(
    module: nn.Module, blobs: Data, unbalanced: Partition, method: str, engine: str, trainable: int
) -> None:
    result = ran(module, blobs, unbalanced, method, engine, trainable)
    assert torch.equal(result.model[0].weight, module[0].weight)  # type: ignore[index]
    assert torch.equal(result.model[0].bias, module[0].bias)  # type: ignore[index]
    assert not torch.equal(result.model[2].weight, module[2].weight)  # type: ignore[index]
    reference = ran(module, blobs, unbalanced, method, "inline", trainable)
    assert torch.allclose(result.state.vector, reference.state.vector, atol=1e-5)
    if engine in ("processes", "spawned"):
        assert result.digest == reference.digest


@pytest.mark.parametrize(
    ("method", "engine"),
    [*((method, engine) for method in METHODS for engine in ("processes", "vectorised")), ("scaffold", "spawned")],
)
def test_the_rest_stays_and_engines_agree(
    deep: nn.Sequential, blobs: Data, unbalanced: Partition, method: str, engine: str
) -> None:
    stays_and_agrees(deep, blobs, unbalanced, method, engine, trainable=2)


@pytest.mark.parametrize(
    "method", ["fed_avg", *(pytest.param(method, marks=pytest.mark.thorough) for method in ("scaffold", "fed_avg_r"))]
)
def test_the_rest_stays_where_the_step_is_compiled(
    compiler: None, smooth: nn.Module, blobs: Data, unbalanced: Partition, method: str
) -> None:
    """With one layer to train: the compiler takes seconds for every layer of every step."""
    stays_and_agrees(smooth, blobs, unbalanced, method, "compiled", trainable=1)


def test_the_callers_own_model_is_not_changed(deep: nn.Sequential, blobs: Data, unbalanced: Partition) -> None:
    before = [p.clone() for p in deep.parameters()]
    ran(deep, blobs, unbalanced, "fed_avg", "inline")
    assert all(p.requires_grad for p in deep.parameters())
    assert all(torch.equal(p, old) for p, old in zip(deep.parameters(), before, strict=True))


def test_what_is_frozen_is_not_sent(deep: nn.Sequential, blobs: Data, unbalanced: Partition) -> None:
    result = ran(deep, blobs, unbalanced, "fed_avg", "processes")
    sent = 4 * (16 * 6 + 6 + 6 * 3 + 3) * len(unbalanced)
    assert [record["bytes_down"] for record in result.history] == [sent] * 3
    assert [record["bytes_up"] for record in result.history] == [sent] * 3


@pytest.mark.parametrize("engine", ["inline", "vectorised", pytest.param("compiled", marks=pytest.mark.thorough)])
def test_training_the_rest_is_training_it_on_the_frozen_parts_outputs(
    deep: nn.Sequential, blobs: Data, unbalanced: Partition, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "compiled":
        request.getfixturevalue("compiler")
    with torch.no_grad():
        body = deep[:2]
        features = replace(
            blobs,
            train=replace(blobs.train, x=body(blobs.train.x)),
            test=replace(blobs.test, x=body(blobs.test.x)),
        )
    whole = ran(deep, blobs, unbalanced, "fed_avg", engine)
    head = fedquilt.train(deep[2:], features, unbalanced, METHODS["fed_avg"], 3, engine=ENGINES[engine])
    assert torch.allclose(whole.state.vector, head.state.vector, atol=1e-5)
    assert whole.history.loss == pytest.approx(head.history.loss, rel=1e-4)


def test_a_frozen_convolution_trains_with_channels_last() -> None:
    digits = fedquilt.digits()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10))
    held = fedquilt.iid(digits.train.y.numpy(), clients=20)
    results = [
        fedquilt.train(net, digits, held, fedquilt.fed_avg(), 2, engine=engine, trainable=["2", "5"])
        for engine in (fedquilt.inline(), fedquilt.processes(workers=2))
    ]
    assert results[0].digest == results[1].digest
    assert torch.equal(results[0].model.get_parameter("0.weight"), net.get_parameter("0.weight"))
    assert results[0].model.get_parameter("0.weight").is_contiguous()


def test_a_penalty_on_a_frozen_classifier_is_refused(deep: nn.Sequential, blobs: Data, unbalanced: Partition) -> None:
    with pytest.raises(FedquiltError, match="fed_avg_r changes how the classifier learns, but 4 is frozen"):
        fedquilt.train(deep, blobs, unbalanced, METHODS["fed_avg_r"], 1, engine=fedquilt.inline(), trainable=["2"])


def test_a_frozen_classifier_is_diagnosed_all_the_same(blobs: Data, unbalanced: Partition, smooth: nn.Module) -> None:
    result = fedquilt.train(
        smooth, blobs, unbalanced, METHODS["fed_avg"], 1, engine=fedquilt.inline(), trainable=["0"], diagnose=True
    )
    assert result.history.records[0]["excess_risk"]["trace_norm"] > 0


# From a file, and on


def test_an_interrupted_run_goes_on_with_what_was_frozen(
    deep: nn.Sequential, blobs: Data, unbalanced: Partition, tmp_path: Path
) -> None:
    def train(rounds: int, out: Path | None) -> fedquilt.Result:
        return fedquilt.train(
            deep, blobs, unbalanced, METHODS["scaffold"], rounds, engine=fedquilt.inline(), trainable=1, out=out
        )

    train(2, tmp_path / "run")
    assert train(4, tmp_path / "run").digest == train(4, None).digest


def test_a_run_starts_from_a_file(deep: nn.Sequential, blobs: Data, unbalanced: Partition, tmp_path: Path) -> None:
    save_file(deep.state_dict(), tmp_path / "weights.safetensors")
    torch.manual_seed(5)
    other = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 3))
    common = {"method": METHODS["fed_avg"], "rounds": 1, "engine": fedquilt.inline(), "trainable": 2}
    warm = fedquilt.train(other, blobs, unbalanced, start=tmp_path / "weights.safetensors", **common)  # type: ignore[arg-type]
    assert warm.digest == fedquilt.train(deep, blobs, unbalanced, **common).digest  # type: ignore[arg-type]
    assert torch.equal(warm.model.get_parameter("0.weight"), deep.get_parameter("0.weight"))


def test_a_file_that_changed_is_noticed(
    deep: nn.Sequential, blobs: Data, unbalanced: Partition, tmp_path: Path
) -> None:
    def train(rounds: int) -> fedquilt.Result:
        return fedquilt.train(
            deep, blobs, unbalanced, METHODS["fed_avg"], rounds, engine=fedquilt.inline(), out=tmp_path / "run",
            start=tmp_path / "weights.safetensors", trainable=1,
        )  # fmt: skip

    values = {name: tensor.clone() for name, tensor in deep.state_dict().items()}
    save_file(values, tmp_path / "weights.safetensors")
    train(1)
    values["0.weight"][0, 0] += 1  # of a layer that is frozen
    save_file(values, tmp_path / "weights.safetensors")
    with pytest.raises(RunError, match="holds a run of another federation"):
        train(2)
