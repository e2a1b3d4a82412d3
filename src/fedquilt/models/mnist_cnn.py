"""The MNIST CNN: two convolutions and a layer of 512.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
The paper's count of 1,663,370 parameters settles the padding: 7×7×64 inputs to the layer of 512 need "same" padding. It
names ReLU for that layer only; one stands after each convolution too, as in TensorFlow's MNIST tutorial of the time.
"""

from __future__ import annotations

from torch import nn

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of, convolved_and_pooled, ending_in_classifier


@models.register
def mnist_cnn(classes: Size | None = None, data: Data | None = None) -> nn.Module:
    """Two 5×5 convolutions (32, 64) and a layer of 512, 1,663,370 parameters with 10 classes (McMahan 2017).

    `classes` are those of `data` unless given, and 10 without data; a spec fills in `data`.
    The input is (N, 1, 28, 28); (N, 28, 28) and (N, 784) are taken as well.

    >>> import torch
    >>> model = mnist_cnn()
    >>> model(torch.zeros(2, 784)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 1663370)
    """
    return ending_in_classifier(
        nn.Flatten(),
        nn.Unflatten(1, (1, 28, 28)),
        *convolved_and_pooled(1, 32),
        *convolved_and_pooled(32, 64),
        nn.Flatten(),
        nn.Linear(7 * 7 * 64, 512),
        nn.ReLU(),
        nn.Linear(512, classes_of(data, classes, 10)),
    )
