"""Training a part of a model: what is frozen stays in the module, is not trained, and is not sent."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fedquilt.errors import SpecError, nearest
from fedquilt.models.weights import within


def train_only(module: nn.Module, trainable: int | Sequence[str]) -> None:
    """Freeze all parameters but those of the last layers, or of the parts that are named.

    trainable: how many layers, counted from the end, in the order in which the model names them, a layer being a part that
    has parameters itself; or names of parts or parameters ("block.2" is every "block.2.…"). What the model froze itself
    stays frozen.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> train_only(model, 2)
    >>> [name for name, p in model.named_parameters() if p.requires_grad]
    ['2.weight', '2.bias', '4.weight', '4.bias']
    >>> train_only(model, ["4"])
    >>> [name for name, p in model.named_parameters() if p.requires_grad]
    ['4.weight', '4.bias']
    """
    layers = [name for name, part in module.named_modules() if any(True for _ in part.parameters(recurse=False))]
    if isinstance(trainable, int):
        if trainable > len(layers):
            raise SpecError(f"trainable: the last {trainable} layers are asked for, but the model has {len(layers)}")
        # A layer's own parameters, not those of the layers inside it: these count by themselves.
        wanted = {id(p) for name in layers[-trainable:] for p in module.get_submodule(name).parameters(recurse=False)}
    else:
        named = list(module.named_parameters(remove_duplicate=False))
        for part in trainable:
            if not any(within(name, [part]) for name, _ in named):
                parts = [name for name in layers if name] or [name for name, _ in named]
                raise SpecError(f"trainable: the model has no part called '{part}'; {nearest(part, parts)}")
        wanted = {id(p) for name, p in named if within(name, trainable)}
    frozen = [p for p in module.parameters() if id(p) not in wanted]
    _refuse_statistics(module, wanted)
    for parameter in frozen:
        parameter.requires_grad_(False)
    if not any(p.requires_grad for p in module.parameters()):
        raise SpecError("trainable: leaves nothing to train: what it names is frozen by the model itself")


def _refuse_statistics(module: nn.Module, wanted: set[int]) -> None:
    """Refuse to freeze a layer whose statistics would go on changing, and be sent."""
    for name, part in module.named_modules():
        keeps = isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats and part.affine
        if keeps and not any(id(p) in wanted for p in part.parameters()):
            raise SpecError(
                f"trainable: leaves out {name or 'the model'} ({type(part).__name__}), whose running statistics training "
                "changes all the same; name it too, or take a model with group normalisation"
            )
