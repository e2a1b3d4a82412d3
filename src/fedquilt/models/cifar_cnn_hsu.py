"""The CIFAR network of Hsu 2020: two convolutions and two full layers.

Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution", section 6.5.
The paper's 32×32 images with "same" padding leave 8×8×64 inputs to the first full layer.
"""

from __future__ import annotations

from torch import nn

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.models.classifier import ending_in_classifier
from fedquilt.models.sizes import classes_of


@models.register
def cifar_cnn_hsu(classes: Size | None = None, data: Data | None = None) -> nn.Module:
    """Two 5×5 convolutions (64, 64) and layers of 384 and 192, 1,756,426 parameters with 10 classes (Hsu 2020).

    `classes` are those of `data` unless given, and 10 without data; a spec fills in `data`.

    >>> import torch
    >>> model = cifar_cnn_hsu()
    >>> model(torch.zeros(2, 3, 32, 32)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 1756426)
    """
    # max(relu(x)) = relu(max(x)), gradients included: the ReLU after the pooling does a quarter of the work.
    return ending_in_classifier(
        nn.Conv2d(3, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 8 * 64, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, classes_of(data, classes, 10)),
    )
