"""Weights from a safetensors file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from fedquilt.errors import DataError

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def load_weights(module: nn.Module, path: Path, skip: Sequence[str] = ()) -> None:
    """Put the tensors of a safetensors file into a module, by their names in its `state_dict`.

    Names and shapes have to agree, all of them. Layers named in `skip` may be missing or have another shape: they are
    then left at their initial values, with a warning that says so. Numbers of other precision are converted.

    >>> import tempfile
    >>> from safetensors.torch import save_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_file({"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, Path(folder) / "a.safetensors")
    ...     layer = nn.Linear(2, 1)
    ...     load_weights(layer, Path(folder) / "a.safetensors")
    >>> layer.weight.tolist()
    [[1.0, 1.0]]
    """
    own = dict(module.state_dict())
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            left = _left_out(path, own, shapes, skip)
            for name, tensor in own.items():
                if name not in left:
                    with torch.no_grad():
                        tensor.copy_(file.get_tensor(name))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file of weights") from None
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: is no safetensors file, or damaged: {error}") from None
    if left:
        warnings.warn(
            f"{path}: left at their initial values, since the file has none that fit: {', '.join(sorted(left))}",
            RuntimeWarning,
            stacklevel=3,
        )


def _left_out(
    path: Path, own: dict[str, torch.Tensor], shapes: dict[str, tuple[int, ...]], skip: Sequence[str]
) -> set[str]:
    """Return the tensors that are left as they are, or raise an error of what does not agree."""
    strange = [name for name in shapes if name not in own]
    statistics = [name for name in strange if name.rpartition(".")[2] in STATISTICS]
    if statistics:
        raise DataError(
            f"{path}: has statistics of batch normalisation ({statistics[0]} and {len(statistics) - 1} more), which this "
            "model has no place for: weights that were trained with it do not work with another normalisation. Take "
            "weights of the same model, trained without batch normalisation"
        )
    unlike = {name for name, tensor in own.items() if shapes.get(name) != tuple(tensor.shape)}
    left = {name for name in unlike if _within(name, skip)}
    wrong = [f"{name}: {_said(shapes.get(name))} instead of {tuple(own[name].shape)}" for name in sorted(unlike - left)]
    wrong += [f"{name}: not in the model" for name in strange if not _within(name, skip)]
    if wrong:
        more = f", and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise DataError(f"{path}: does not fit the model: {'; '.join(wrong[:5])}{more}")
    return left


def _within(name: str, layers: Sequence[str]) -> bool:
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


def _said(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else str(shape)
