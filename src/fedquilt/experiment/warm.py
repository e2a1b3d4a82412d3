"""Makes a model ready for a run: its first values from a file, and what of it is trained."""

from __future__ import annotations

from torch import nn

from fedquilt.base.errors import DataError, SpecError
from fedquilt.experiment.options import Options
from fedquilt.models.weights import load_weights, train_only, within


def warm(module: nn.Module, options: Options) -> None:
    """Put the values that a run starts from into a model, and freeze what the run does not train."""
    if options.start is not None:
        skip = options.start_skip or []
        for part in skip:
            if not any(within(name, [part]) for name in module.state_dict()):
                raise SpecError(f"start_skip: the model has no part called '{part}'")
        try:
            load_weights(module, options.start, skip)
        except DataError as error:
            raise SpecError(f"start: {error}") from error
    if options.trainable is not None:
        train_only(module, options.trainable)
