"""Sizes that the data know need no keys: every model takes them from a spec's data, with the bits of keys that say them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.base import registry
from fedquilt.base.errors import SpecError
from fedquilt.data.data import Data, Split
from fedquilt.experiment.build import build
from fedquilt.experiment.spec import check_spec

CLASSES = 7
SHAPES: dict[str, tuple[int, ...]] = {
    "mnist_cnn": (1, 28, 28),
    "cifar_cnn_mcmahan": (3, 24, 24),
    "cifar_cnn_hsu": (3, 32, 32),
    "resnet20_fixup": (3, 32, 32),
    "mobilenet_v2": (3, 32, 32),
}
TEXTS = ("char_lstm", "word_lstm")


def data_for(model: str) -> Data:
    """Make a few examples of the shape that a model takes, in 7 classes."""
    rng = np.random.default_rng(0)
    if model in TEXTS:
        text = torch.from_numpy(rng.integers(0, CLASSES, size=(6, 5)))
        split = Split(text, text)
    else:
        x = rng.normal(size=(6, *SHAPES.get(model, (2, 3)))).astype(np.float32)
        split = Split(torch.from_numpy(x), torch.arange(6))
    return Data("few", split, split, classes=CLASSES)


@pytest.mark.parametrize("name", list(registry.models))
def test_every_model_takes_its_sizes_from_the_data(name: str) -> None:
    data = data_for(name)
    model: Any = registry.models[name](data=data)
    outputs = model(data.train.x)
    assert outputs.shape == (*data.train.y.shape, CLASSES)
    key = "vocabulary" if name in TEXTS else "classes"
    with pytest.raises(SpecError, match=f"{key}: is 6, but few has 7 classes; remove this key"):
        registry.models[name](data=data, **{key: 6})
    more: Any = registry.models[name](data=data, **{key: 9})
    assert more(data.train.x).shape[-1] == 9


SPEC: dict[str, dict[str, Any]] = {
    "run": {"rounds": 2, "seed": 3},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 4},
    "method": {"name": "fed_avg", "fraction": 0.5},
    "engine": {"name": "inline"},
}


@pytest.mark.parametrize("name", ["softmax_regression", "mnist_2nn", "random_fourier"])
def test_bits_are_those_of_given_sizes(name: str, tmp_path: Path) -> None:
    plain = fedquilt.run(SPEC | {"model": {"name": name}}, out=tmp_path / "plain")
    given = fedquilt.run(SPEC | {"model": {"name": name, "inputs": 64, "classes": 10}}, out=tmp_path / "given")
    assert plain.result.digest == given.result.digest
    more = fedquilt.resume(tmp_path / "plain", rounds=3)
    assert more.result.digest == fedquilt.resume(tmp_path / "given", rounds=3).result.digest


@pytest.mark.parametrize("name", ["softmax_regression", "mnist_2nn", "random_fourier"])
def test_another_number_of_inputs_is_refused(name: str) -> None:
    spec = check_spec(SPEC | {"model": {"name": name, "inputs": 784}})
    message = r"spec: \[model\] inputs: is 784, but an example of digits has 64 values; remove this key"
    with pytest.raises(SpecError, match=message):
        build(spec)


def test_inputs_are_counted_as_the_model_sees_them() -> None:
    """Rows may be packed: what counts is what `prepare` makes of them."""
    packed = Split(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))
    data = Data("packed", packed, packed, classes=2, prepare=lambda x: x.expand(-1, 5))
    model: Any = registry.models["softmax_regression"](data=data)
    assert model[1].in_features == 5


@pytest.mark.parametrize(("targets", "outputs"), [(torch.zeros(4), 1), (torch.zeros(4, 3), 3)])
def test_targets_that_are_numbers(targets: torch.Tensor, outputs: int) -> None:
    split = Split(torch.zeros(4, 2), targets)
    data = Data("numbers", split, split, classes=0)
    model: Any = registry.models["softmax_regression"](data=data)
    assert model[1].out_features == outputs
    with pytest.raises(SpecError, match=r"classes: is 10, but numbers has . number\(s\) as an example's target"):
        registry.models["softmax_regression"](data=data, classes=10)


def test_without_data_sizes_are_the_papers() -> None:
    model: Any = registry.models["mnist_2nn"]()
    assert (model[1].in_features, model[-1].out_features) == (784, 10)
