"""What a run minimises and what it measures: its loss and its metrics, by name, or the user's own by import path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.algorithm.loss import Loss, OwnLoss
from fedquilt.algorithm.metric import Metric
from fedquilt.base import registry
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import Registry
from fedquilt.base.text import short
from fedquilt.experiment.imports import imported
from fedquilt.experiment.options import Options
from fedquilt.round.validation import Validation

if TYPE_CHECKING:
    from fedquilt.round.federation import Federation
from fedquilt.round.server import Server

OwnFunction = Callable[..., Any]
"""A function of outputs and targets that returns one value per prediction; or a Loss or Metric."""


OWN_LOSS = "own"
"""What the folder of a run from Python says of a loss that no name stands for."""


def chosen_loss(chosen: str | OwnFunction, home: Path | None = None, where: str = "loss") -> Loss:
    """Return the loss of a name or an import path, or made of a function.

    >>> import torch
    >>> chosen_loss("mean_squared_error")(torch.ones(2), torch.zeros(2))
    tensor(1.)
    >>> chosen_loss(lambda outputs, targets: (outputs - targets).abs())(torch.ones(2), torch.zeros(2))
    tensor(1.)
    >>> chosen_loss("mean_square_error")
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: loss: no loss is called 'mean_square_error'; did you mean 'mean_squared_error'?
    (known: cross_entropy, mean_squared_error); or the import path of your own, "module:function"
    """
    found = _found(chosen, registry.losses, home, where)
    return found if isinstance(found, Loss) else Loss(OwnLoss(found, _name(found)))


def registered_loss(loss: Loss) -> str | None:
    """Return the name of a loss that is registered; None of one of the user's own.

    >>> registered_loss(chosen_loss("mean_squared_error")), registered_loss(chosen_loss(abs))
    ('mean_squared_error', None)
    """
    same = (name for name in registry.losses if replace(chosen_loss(name), normalise=loss.normalise) == loss)
    return next(same, None)


def chosen_metrics(
    chosen: Sequence[str | OwnFunction], home: Path | None = None, where: str = "metrics"
) -> tuple[Metric, ...]:
    """Return the metrics of names or import paths, or made of functions.

    >>> [metric.name for metric in chosen_metrics(["accuracy", "top5"])]
    ['accuracy', 'top5']
    """
    found = [_found(each, registry.metrics, home, where) for each in chosen]
    metrics = tuple(each if isinstance(each, Metric) else Metric(_name(each), each) for each in found)
    for number, metric in enumerate(metrics):
        taken = metric.name in registry.metrics and metric != registry.metrics[metric.name]()
        if taken or metric.name == "loss" or metric.name in [before.name for before in metrics[:number]]:
            raise SpecError(
                f"{where}: there is another '{metric.name}'; name each metric once, and give yours another name"
            )
    return metrics


def chosen_validation(options: Options) -> Validation | None:
    """Return what is held out of clients' training examples, if anything is."""
    return Validation.asked(options.validation, options.folds, options.fold)


def written(chosen: str | OwnFunction) -> str:
    """Return how a loss or metric is written in a spec.

    >>> import math
    >>> written("top5"), written(math.hypot)
    ('top5', 'math:hypot')
    """
    return chosen if isinstance(chosen, str) else f"{getattr(chosen, '__module__', '')}:{_name(chosen)}"


def require_accuracy(options: Options, federation: Federation | Server) -> None:
    """Refuse to stop at an accuracy that is not measured."""
    if options.stop_at is not None and not any(metric.name == "accuracy" for metric in federation.metrics):
        raise SpecError(
            "stop_at: is an accuracy, which this run does not measure; add accuracy to metrics, or remove stop_at"
        )


def _found(chosen: str | OwnFunction, known: Registry, home: Path | None, where: str) -> Any:
    if isinstance(chosen, str):
        if chosen in known:
            return known[chosen]()
        if ":" in chosen:
            return imported(chosen, home, where)
        raise SpecError(f"{where}: {known.unknown(chosen)}")
    if not callable(chosen):
        raise SpecError(f"{where}: must be a name or a function of outputs and targets, got {short(chosen)}")
    return chosen


def _name(function: OwnFunction) -> str:
    return str(getattr(function, "__name__", None) or getattr(function, "name", None) or type(function).__name__)
