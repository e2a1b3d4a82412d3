"""What models are built with: stacks of layers, sizes that the data know, and a check of memory.

A spec hands a model its data, so that neither the number of inputs nor that of classes needs a key. From Python, sizes are
given, or taken from `data=…`; without either they are those of the model's paper.
"""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from fedquilt.base.errors import SpecError
from fedquilt.base.memory import require_memory
from fedquilt.data.data import Data

COPIES = 4
"""A run holds a model so many times at least: the server's, a worker's, an update and the sum of updates."""

FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn}
"""What layers make their parameters with."""


def ending_in_classifier(*layers: nn.Module) -> nn.Sequential:
    """Stack layers, and name the last one, which is linear, as the classifier.

    A model says which of its layers is the classifier by the attribute `classifier_layer`, that layer's name. Its inputs
    are the model's features: methods that look at features find them there, in a model of the user's own too.

    >>> model = ending_in_classifier(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> model.classifier_layer, model.get_submodule(model.classifier_layer)
    ('2', Linear(in_features=3, out_features=2, bias=True))
    """
    model = nn.Sequential(*layers)
    model.classifier_layer = str(len(layers) - 1)  # type: ignore[assignment]
    return model


def convolved_and_pooled(channels: int, filters: int) -> tuple[nn.Module, ...]:
    """Return a 5×5 convolution with "same" padding, max pooling 2×2, and a ReLU.

    max(relu(x)) = relu(max(x)), gradients included: after the pooling, the ReLU does a quarter of the work.
    """
    return nn.Conv2d(channels, filters, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()


def inputs_of(data: Data | None, given: int | None, published: int) -> int:
    """Return how many values an example has once it is ready for the model, or refuse another number.

    >>> from fedquilt import digits
    >>> inputs_of(digits(), None, published=784), inputs_of(None, None, published=784), inputs_of(None, 2, published=784)
    (64, 784, 2)
    >>> inputs_of(digits(), 784, published=784)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: inputs: is 784, but an example of digits has 64 values; remove this key
    """
    if data is None:
        return published if given is None else given
    examples = data.train if len(data.train) else data.test  # a server may have a test set alone
    found = data.inputs(examples, range(1)).numel()
    if given not in (None, found):
        raise SpecError(f"inputs: is {given}, but an example of {data.name} has {found} values; remove this key")
    return found


def classes_of(data: Data | None, given: int | None, published: int, key: str = "classes") -> int:
    """Return how many scores a model has: one per class or, where targets are numbers, one per number.

    More classes than the data have may be wanted, for weights from elsewhere or a paper's vocabulary. Fewer are refused.

    >>> from fedquilt import digits
    >>> data = digits()
    >>> classes_of(data, None, published=10), classes_of(data, 12, published=10), classes_of(None, None, published=2)
    (10, 12, 2)
    >>> classes_of(digits(), 9, published=10)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: classes: is 9, but digits has 10 classes; remove this key
    """
    if data is None:
        return published if given is None else given
    y = data.train.y
    found = data.classes or (y.shape[1] if y.dim() > 1 else 1)
    if given is not None and (given < found or (given > found and not data.classes)):
        what = "classes" if data.classes else "number(s) as an example's target"
        raise SpecError(f"{key}: is {given}, but {data.name} has {found} {what}; remove this key")
    return found if given is None else given


class WithinMemory(TorchFunctionMode):
    """Lets a model be made only if it fits into memory: its tensors are counted before each of them is made.

    >>> from torch import nn
    >>> with WithinMemory():
    ...     nn.Linear(10**8, 10**8)
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: the model, of which a run has 4 copies, would take 160,000,000 GB of memory; ...
    """

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES:
            size = args[0] if args and isinstance(args[0], list | tuple) else kwargs.get("size") or args
            lengths = list(takewhile(lambda length: isinstance(length, int), size))
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            self._bytes += math.prod(lengths) * dtype.itemsize
            require_memory(f"the model, of which a run has {COPIES} copies,", COPIES * self._bytes)
        return func(*args, **kwargs)
