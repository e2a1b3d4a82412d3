"""Weights from a file: what fits is loaded, what does not is refused before the model changes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedquilt.base.errors import DataError
from fedquilt.models import mnist_2nn, resnet20_fixup
from fedquilt.models.weights import load_weights


def written(folder: Path, tensors: dict[str, Tensor]) -> Path:
    path = folder / "weights.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return path


@pytest.mark.parametrize("make", [lambda: mnist_2nn(64), resnet20_fixup, lambda: nn.BatchNorm1d(4)])
def test_a_model_takes_over_the_values_of_another(tmp_path: Path, make: type[nn.Module]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        source, target = make(), make()
    for tensor in source.state_dict().values():
        tensor.add_(1)
    path = written(tmp_path, source.state_dict())
    assert load_weights(target, path) == []
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name]), name


def test_half_precision_becomes_the_models_own(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    path = written(tmp_path, {"weight": torch.ones(1, 2, dtype=torch.bfloat16), "bias": torch.ones(1).double()})
    load_weights(model, path)
    assert model.weight.dtype == torch.float32
    assert model(torch.ones(1, 2)).item() == 3.0


def test_tied_weights_need_be_there_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    assert load_weights(model, written(tmp_path, {"0.weight": torch.eye(3)})) == []
    assert torch.equal(model.get_parameter("1.weight"), torch.eye(3))


def test_a_skipped_part_may_have_any_shape_or_be_missing(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 7))
    values = {"0.weight": torch.eye(2), "0.bias": torch.zeros(2), "1.weight": torch.zeros(1000, 2)}
    assert load_weights(model, written(tmp_path, values), skip=("1",)) == ["1.weight", "1.bias"]


def test_the_message_lists_what_is_missing_left_over_and_misshapen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5))
    values = {
        "0.weight": torch.ones(3, 2),
        "0.bias": torch.ones(4),
        "1.weight": torch.ones(5, 3),
        "head": torch.ones(1),
    }
    path = written(tmp_path, values)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(DataError) as caught:
        load_weights(model, path)
    assert str(caught.value) == (
        f"{path}: does not fit the model: it lacks 1.bias; it has head, which the model lacks; "
        "0.bias is (4,), but the model has (3,)"
    )
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_long_lists_are_cut(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"it lacks .*, .* and \d+ more"):
        load_weights(resnet20_fixup(), written(tmp_path, {}))


def test_batch_normalisation_statistics_are_refused_with_the_reason(tmp_path: Path) -> None:
    source = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))
    path = written(tmp_path, source.state_dict())
    with pytest.raises(DataError, match=r"statistics of batch normalisation \(1\.num_batches_tracked, 1\.running_mean"):
        load_weights(nn.Sequential(nn.Linear(2, 4), nn.GroupNorm(2, 4)), path)


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"weight": torch.tensor([[1.0, float("nan")]]), "bias": torch.zeros(1)})
    with pytest.raises(DataError, match="not finite, in weight"):
        load_weights(nn.Linear(2, 1), path)


def test_whole_numbers_for_weights_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"weight": torch.ones(1, 2, dtype=torch.int64), "bias": torch.zeros(1)})
    with pytest.raises(DataError, match=r"weight is I64, but the model has torch\.float32"):
        load_weights(nn.Linear(2, 1), path)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64])
def test_numbers_of_other_kinds_are_refused(tmp_path: Path, kind: torch.dtype) -> None:
    path = written(tmp_path, {"weight": torch.ones(1, 2).to(kind), "bias": torch.zeros(1)})
    with pytest.raises(
        DataError, match=r"weight is \w+, but the model has torch\.float32, which is read from F32, F64"
    ):
        load_weights(nn.Linear(2, 1), path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.safetensors: no such weights file"):
        load_weights(nn.Linear(2, 1), tmp_path / "none.safetensors")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip, as torch.save writes it", b"\xff" * 64])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as safetensors"):
        load_weights(nn.Linear(2, 1), path)


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, nn.Linear(2, 1).state_dict())
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match="cannot be read as safetensors"):
        load_weights(nn.Linear(2, 1), path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder, but must be a regular file"):
        load_weights(nn.Linear(2, 1), tmp_path)
