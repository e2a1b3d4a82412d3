"""Softmax regression: one linear layer, the convex baseline."""

from __future__ import annotations

from torch import nn

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of, ending_in_classifier, inputs_of


@models.register
def softmax_regression(inputs: Size | None = None, classes: Size | None = None, data: Data | None = None) -> nn.Module:
    """One linear layer on the flattened input.

    `inputs` and `classes` are those of `data` unless given, and 784 and 10 without data; a spec fills in `data`.

    >>> import torch
    >>> softmax_regression(inputs=64)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    return ending_in_classifier(nn.Flatten(), nn.Linear(inputs_of(data, inputs, 784), classes_of(data, classes, 10)))
