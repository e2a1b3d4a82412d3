"""The MNIST 2NN: two hidden layers of 200 units.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
"""

from __future__ import annotations

from torch import nn

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of, ending_in_classifier, inputs_of


@models.register
def mnist_2nn(
    inputs: Size | None = None, hidden: Size = 200, classes: Size | None = None, data: Data | None = None
) -> nn.Module:
    """A perceptron with two hidden ReLU layers, 199,210 parameters on MNIST (McMahan 2017).

    `inputs` and `classes` are those of `data` unless given, and 784 and 10 without data; a spec fills in `data`.

    >>> import torch
    >>> model = mnist_2nn()
    >>> model(torch.zeros(2, 1, 28, 28)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 199210)
    """
    return ending_in_classifier(
        nn.Flatten(),
        nn.Linear(inputs_of(data, inputs, 784), hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes_of(data, classes, 10)),
    )
