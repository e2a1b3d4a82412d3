"""MobileNetV2 and weights from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fedquilt
from fedquilt.base.errors import DataError, SpecError
from fedquilt.models import mobilenet_v2
from fedquilt.models.mobilenet_v2 import STAGES, MobileNetV2
from fedquilt.models.weights import load_weights


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_parameters_are_those_derived() -> None:
    """A block has c·tc + 2tc (if t > 1) + 11·tc + tc·c′ + 2c′; see the module's docstring."""
    total, channels = 27 * 32 + 2 * 32, 32
    for t, out, blocks, _ in STAGES:
        for _ in range(blocks):
            wide = t * channels
            total += (channels * wide + 2 * wide if t > 1 else 0) + 11 * wide + wide * out + 2 * out
            channels = out
    total += 320 * 1280 + 2 * 1280
    assert total == 2_223_872
    assert parameters(mobilenet_v2()) == total + 1281 * 1203 == 3_764_915
    assert parameters(mobilenet_v2(classes=2028, bottleneck=64)) == total + 1281 * 64 + 65 * 2028 == 2_437_676
    # torchvision documents 3,504,872 for its own, with 1,000 classes; batch normalisation has as many parameters.
    assert parameters(mobilenet_v2(classes=1000)) == 3_504_872


def test_the_shapes_are_those_of_table_2() -> None:
    """Sandler 2018, table 2: the image of 224 is halved five times, and the channels are as printed."""
    model = mobilenet_v2(classes=3)
    assert isinstance(model, MobileNetV2)
    shapes = []
    x = torch.zeros(1, 3, 224, 224)
    for layer in model.features:
        x = layer(x)
        shapes.append((x.shape[1], x.shape[2]))
    stages = [shapes[i] for i in (0, 1, 3, 6, 10, 13, 16, 17, 18)]
    assert stages == [(32, 112), (16, 112), (24, 56), (32, 28), (64, 14), (96, 14), (160, 7), (320, 7), (1280, 7)]
    assert model(torch.zeros(2, 3, 299, 299)).shape == (2, 3)


def test_blocks_add_their_input_where_it_has_the_same_shape() -> None:
    model = mobilenet_v2(classes=3)
    assert isinstance(model, MobileNetV2)
    added = [bool(layer.same) for layer in model.features if hasattr(layer, "same")]
    assert sum(added) == 10  # 16 blocks after the first stage, six of which change the shape
    block = model.features[3]
    x = torch.randn(2, 24, 8, 8)
    assert torch.equal(block(x), x + block.get_submodule("conv")(x))


@pytest.mark.parametrize("width", [0.35, 0.5, 0.75, 1.0, 1.3, 1.4])
def test_eight_groups_fit_every_width(width: float) -> None:
    assert mobilenet_v2(classes=3, width=width)(torch.zeros(1, 3, 32, 32)).shape == (1, 3)


def test_the_published_widths() -> None:
    """The last layer never has fewer than 1,280 channels (Sandler 2018, section 4)."""
    assert mobilenet_v2(classes=3, width=0.5).classifier.in_features == 1280  # type: ignore[union-attr]
    assert mobilenet_v2(classes=3, width=1.4).classifier.in_features == 1792  # type: ignore[union-attr]


def test_groups_that_do_not_divide() -> None:
    assert mobilenet_v2(classes=3, groups=4)(torch.zeros(1, 3, 32, 32)).shape == (1, 3)
    with pytest.raises(SpecError, match="groups: 3 does not divide the channels of every layer; 8 always does"):
        mobilenet_v2(groups=3)


def test_nothing_depends_on_the_other_images_of_a_batch() -> None:
    torch.manual_seed(0)
    model, x = mobilenet_v2(classes=5, width=0.35).train(), torch.randn(3, 3, 32, 32)
    assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-5)
    assert dict(model.named_buffers()) == {}


def test_it_trains(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 3, 32, 32)).astype(np.float32), np.arange(24) % 2
    data = fedquilt.arrays(x, y, x, y)
    torch.manual_seed(0)
    model = mobilenet_v2(classes=2, width=0.35, bottleneck=4)
    partition = fedquilt.iid(y, clients=2)
    method = fedquilt.fed_avg(lr=0.05, fraction=1.0, batch=6)
    result = fedquilt.train(model, data, partition, method, rounds=1, engine=fedquilt.processes(workers=2))
    assert result.history.records[0]["applied"]
    assert not torch.equal(result.model.state_dict()["features.0.0.weight"], model.state_dict()["features.0.0.weight"])


# Weights.


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """Weights of a model with another number of classes, in half precision."""
    torch.manual_seed(1)
    state = mobilenet_v2(classes=10, width=0.35).state_dict()
    save_file({name: tensor.half() for name, tensor in state.items()}, tmp_path / "imagenet.safetensors")
    return tmp_path / "imagenet.safetensors"


def test_a_classifier_of_another_shape_stays_as_it_is_and_a_warning_says_so(imagenet: Path) -> None:
    torch.manual_seed(1)
    given = mobilenet_v2(classes=10, width=0.35).state_dict()
    torch.manual_seed(2)
    fresh = mobilenet_v2(classes=4, width=0.35).state_dict()
    torch.manual_seed(2)
    with pytest.warns(RuntimeWarning, match=r"keep their initial values.*: classifier\.bias, classifier\.weight$"):
        loaded = mobilenet_v2(classes=4, width=0.35, pretrained=imagenet).state_dict()
    for name, tensor in loaded.items():
        wanted = fresh[name] if name.startswith("classifier") else given[name].half().float()
        assert torch.equal(tensor, wanted), name


def test_weights_that_fit_are_loaded_whole_and_are_found_with_the_data(
    imagenet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(imagenet.parent))
    torch.manual_seed(1)
    given = mobilenet_v2(classes=10, width=0.35).state_dict()
    loaded = mobilenet_v2(classes=10, width=0.35, pretrained=Path(imagenet.name)).state_dict()
    assert all(torch.equal(tensor, given[name].half().float()) for name, tensor in loaded.items())


def test_torchvisions_classifier_is_passed_over(imagenet: Path) -> None:
    torch.manual_seed(1)
    state = mobilenet_v2(classes=10, width=0.35).state_dict()
    renamed = {name.replace("classifier.", "classifier.1."): tensor for name, tensor in state.items()}
    save_file(renamed, imagenet)
    with pytest.warns(RuntimeWarning, match=r"classifier\.weight"):
        loaded = mobilenet_v2(classes=10, width=0.35, pretrained=imagenet).state_dict()
    assert torch.equal(loaded["features.18.0.weight"], state["features.18.0.weight"])


def test_batch_normalisation_is_refused_with_the_reason(imagenet: Path) -> None:
    state = mobilenet_v2(classes=10, width=0.35).state_dict()
    state |= {"features.0.1.running_mean": torch.zeros(16), "features.0.1.running_var": torch.ones(16)}
    save_file(state, imagenet)
    with pytest.raises(
        DataError,
        match=r"statistics of batch normalisation \(features\.0\.1\.running_mean, features\.0\.1\.running_var\)",
    ):
        mobilenet_v2(classes=10, width=0.35, pretrained=imagenet)


def test_batch_normalisation_is_loaded_where_it_belongs(tmp_path: Path) -> None:
    there, here = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    assert there.running_mean is not None
    assert there.num_batches_tracked is not None
    there.running_mean += 2
    there.num_batches_tracked += 5
    save_file(there.state_dict(), tmp_path / "a.safetensors")
    load_weights(here, tmp_path / "a.safetensors")
    assert here.running_mean.tolist() == [2.0, 2.0, 2.0]  # type: ignore[union-attr]
    assert int(here.num_batches_tracked) == 5  # type: ignore[arg-type]


def test_a_file_that_is_missing() -> None:
    with pytest.raises(DataError, match=r"none\.safetensors: no such file or folder; looked for"):
        mobilenet_v2(pretrained=Path("none.safetensors"))
