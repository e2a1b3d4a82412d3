"""Training a part of a model: what is frozen stays in the module, is not trained, and is not sent."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fedquilt.base.errors import SpecError, nearest
from fedquilt.models.weights import within


def train_only(module: nn.Module, trainable: int | Sequence[str]) -> None:
    """Freeze all parameters but those of the last layers, or of the parts that are named.

    trainable: how many layers, counted from the end, as `layers` counts them; or names of parts or parameters ("block.2" is
    every "block.2.…"). What the model froze itself stays frozen.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> train_only(model, 2)
    >>> [name for name, p in model.named_parameters() if p.requires_grad]
    ['2.weight', '2.bias', '4.weight', '4.bias']
    >>> train_only(model, ["4"])
    >>> [name for name, p in model.named_parameters() if p.requires_grad]
    ['4.weight', '4.bias']
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
