"""The MNIST 2NN: two hidden layers of 200 units.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
"""

from __future__ import annotations

from torch import nn

from fedquilt.arguments import Size
from fedquilt.models.classifier import ending_in_classifier
from fedquilt.registry import models


@models.register
def mnist_2nn(inputs: Size = 784, hidden: Size = 200, classes: Size = 10) -> nn.Module:
    """A perceptron with two hidden ReLU layers, 199,210 parameters by default (McMahan 2017).

    >>> import torch
    >>> model = mnist_2nn()
    >>> model(torch.zeros(2, 1, 28, 28)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 199210)
    """
    return ending_in_classifier(
        nn.Flatten(),
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
