"""Weights from a file, and training a part of them.

A file has a model's values under its `state_dict` names, in safetensors' format. Reading runs no code.
Names and shapes are compared before a value is read, and all of it before the model is changed. What is frozen stays in the
module, is not trained, and is not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import nn

from fedquilt.base.errors import DataError, SpecError, listed, nearest
from fedquilt.compute.layout import Tensors
from fedquilt.data.files import require_regular

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""What batch normalisation keeps besides its weights."""

FLOATING = ("F32", "F64", "F16", "BF16")
WHOLE = ("I64", "I32", "I16", "I8", "U8", "BOOL")
"""How numbers may be stored, as safetensors calls it; others, such as F8_E4M3, are converted before."""

LISTED = 8
"""Names that a message lists; of more, it says how many."""
SENTENCE = 200
"""Characters that a message has for what is wrong with one tensor."""


def load_weights(module: nn.Module, path: str | Path, skip: Sequence[str] = ()) -> list[str]:
    """Put the values of a file into a module, and return the names of what was left at its initial values.

    skip: names of tensors, or of the parts that hold them ("classifier" is every "classifier.…"), to leave as they are;
    what the file has under these names is not looked at.

    >>> import tempfile
    >>> from safetensors.torch import save_file
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "weights.safetensors"
    ...     save_file({"0.weight": torch.ones(3, 2), "0.bias": torch.zeros(3), "1.weight": torch.ones(7, 3)}, path)
    ...     left = load_weights(model, path, skip=["1"])
    >>> left, model[0](torch.ones(1, 2)).tolist()
    (['1.weight', '1.bias'], [[2.0, 2.0, 2.0]])
    """
    path = Path(path)
    tensors: Tensors = module.state_dict(keep_vars=True)
    with _opened(path) as file:
        stored = {name: file.get_slice(name) for name in file.keys() if not within(name, skip)}  # noqa: SIM118
        problems = _problems(tensors, stored, skip)
        if problems:
            raise DataError(f"{path}: does not fit the model: {'; '.join(problems)}")
        values = {name: file.get_tensor(name) for name in stored}
    odd = [name for name, value in values.items() if value.is_floating_point() and not bool(value.isfinite().all())]
    if odd:
        raise DataError(f"{path}: holds values that are not finite, in {listed(odd, LISTED)}")
    with torch.no_grad():
        for name, value in values.items():
            tensors[name].copy_(value)
    filled = {id(tensors[name]) for name in values}
    return [name for name, tensor in tensors.items() if id(tensor) not in filled]


def unlike(module: nn.Module, path: str | Path, parts: Sequence[str]) -> list[str]:
    """Return those of some parts of a module that a file has other tensors for, or none."""
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    with _opened(Path(path)) as file:
        stored = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return [part for part in parts if _part(shapes, part) != _part(stored, part)]


def _part(shapes: dict[str, tuple[int, ...]], part: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if within(name, [part])}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        require_regular(path)
        with safetensors.safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path}: no such weights file") from None
    except (OSError, safetensors.SafetensorError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read as safetensors: {error}. Convert a .pt or .pth file with "
            "safetensors.torch.save_file(module.state_dict(), ...)"
        ) from None


def _problems(tensors: Tensors, stored: dict[str, Any], skip: Sequence[str]) -> list[str]:
    statistics = [name for name in stored if name not in tensors and name.rpartition(".")[2] in STATISTICS]
    if statistics:
        return [
            f"it holds statistics of batch normalisation ({listed(statistics, LISTED)}), which this model does not have: "
            "the other weights depend on them; use weights of a model with the same normalisation"
        ]
    tied = {id(tensors[name]) for name in stored if name in tensors}
    missing = [name for name, tensor in tensors.items() if id(tensor) not in tied and not within(name, skip)]
    over = [name for name in stored if name not in tensors]
    shapes = {name: tuple(part.get_shape()) for name, part in stored.items() if name in tensors}
    wrong = [
        f"{name} is {shape}, but the model has {tuple(tensors[name].shape)}"
        for name, shape in shapes.items()
        if shape != tuple(tensors[name].shape)
    ]
    kinds = [
        f"{name} is {stored[name].get_dtype()}, but the model has {tensors[name].dtype}, which is read from "
        f"{', '.join(FLOATING if tensors[name].is_floating_point() else WHOLE)}; convert it"
        for name in shapes
        if stored[name].get_dtype() not in (FLOATING if tensors[name].is_floating_point() else WHOLE)
    ]
    problems = [f"it lacks {listed(missing, LISTED)}"] if missing else []
    problems += [f"it has {listed(over, LISTED)}, which the model lacks"] if over else []
    return problems + [listed(each, LISTED, SENTENCE) for each in (wrong, kinds) if each]


def within(name: str, parts: Iterable[str]) -> bool:
    """Say whether a tensor is one of some parts of a model, or lies in one.

    >>> within("block.2.weight", ["block.2"]), within("block.21.weight", ["block.2"])
    (True, False)
    """
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def train_only(module: nn.Module, trainable: int | Sequence[str]) -> None:
    """Freeze all parameters but those of the last layers, or of the parts that are named.

    trainable: how many layers, counted from the end, as `layers` counts them; or names of parts or parameters ("block.2" is
    every "block.2.…"). What the model froze itself stays frozen.
    """
    found = layers(module)
    if isinstance(trainable, int):
        if trainable > len(found):
            raise SpecError(f"trainable: the last {trainable} layers are requested, but the model has {len(found)}")
        chosen = [name for layer in found[-trainable:] for name in layer]
        # A part's own parameters, not those of the layers inside it: these count by themselves.
        wanted = {id(p) for name in chosen for p in module.get_submodule(name).parameters(recurse=False)}
    else:
        named = list(module.named_parameters(remove_duplicate=False))
        for part in trainable:
            if not any(within(name, [part]) for name, _ in named):
                parts = [name for layer in found for name in layer if name] or [name for name, _ in named]
                raise SpecError(f"trainable: the model has no part called '{part}'; {nearest(part, parts)}")
        wanted = {id(p) for name, p in named if within(name, trainable)}
    frozen = [p for p in module.parameters() if id(p) not in wanted]
    _refuse_statistics(module, wanted)
    for parameter in frozen:
        parameter.requires_grad_(False)
    if not any(p.requires_grad for p in module.parameters()):
        raise SpecError("trainable: leaves nothing to train: the named parts are frozen by the model")


def layers(module: nn.Module) -> list[list[str]]:
    """List the layers of a model, in the order in which it names them, each by the names of its parts.

    A layer is what multiplies by a matrix or a kernel: linear, convolution, embedding, LSTM. A part that has vectors or
    numbers only goes with a layer: normalisation with the one before it, the scales of a block with the first inside it.

    >>> layers(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)))
    [['0', '1'], ['4']]
    """
    found: list[list[str]] = []
    ahead: list[str] = []
    for name, part in module.named_modules():
        dimensions = [parameter.dim() for parameter in part.parameters(recurse=False)]
        if dimensions and max(dimensions) > 1:
            found.append([*ahead, name])
            ahead = []
        elif dimensions and (not found or any(parameter.dim() > 1 for parameter in part.parameters())):
            ahead.append(name)
        elif dimensions:
            found[-1].append(name)
    return found or ([ahead] if ahead else [])


def _refuse_statistics(module: nn.Module, wanted: set[int]) -> None:
    """Refuse to freeze a layer whose statistics would go on changing, and be sent."""
    for name, part in module.named_modules():
        keeps = isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats and part.affine
        if keeps and not any(id(p) in wanted for p in part.parameters()):
            raise SpecError(
                f"trainable: leaves out {name or 'the model'} ({type(part).__name__}), whose running statistics would "
                "still change in training; name it too, or use a model with group normalisation"
            )
