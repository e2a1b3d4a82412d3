"""The CIFAR network of Hsu 2020: two convolutions and two full layers.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution", section 6.5.
The paper's 32×32 images with "same" padding leave 8×8×64 inputs to the first full layer.
"""

from __future__ import annotations

from torch import nn

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of, convolved_and_pooled, ending_in_classifier


@models.register
def cifar_cnn_hsu(classes: Size | None = None, data: Data | None = None) -> nn.Module:
    """Two 5×5 convolutions (64, 64) and layers of 384 and 192, 1,756,426 parameters with 10 classes (Hsu 2020).

    `classes` are those of `data` unless given, and 10 without data; a spec fills in `data`.

    >>> import torch
    >>> model = cifar_cnn_hsu()
    >>> model(torch.zeros(2, 3, 32, 32)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 1756426)
    """
    return ending_in_classifier(
        *convolved_and_pooled(3, 64),
        *convolved_and_pooled(64, 64),
        nn.Flatten(),
        nn.Linear(8 * 8 * 64, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, classes_of(data, classes, 10)),
    )
