"""Softmax regression: one linear layer, the convex baseline."""

from __future__ import annotations

from torch import nn

from fedquilt.arguments import Size
from fedquilt.models.classifier import ending_in_classifier
from fedquilt.registry import models


@models.register
def softmax_regression(inputs: Size = 784, classes: Size = 10) -> nn.Module:
    """One linear layer on the flattened input.

    >>> import torch
    >>> softmax_regression(inputs=64)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    return ending_in_classifier(nn.Flatten(), nn.Linear(inputs, classes))
