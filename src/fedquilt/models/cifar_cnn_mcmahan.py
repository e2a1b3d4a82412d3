"""The CIFAR network of TensorFlow's tutorial, "about 10⁶ parameters".

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
The tutorial, `tensorflow/models/tutorials/image/cifar10/cifar10.py`, on 24×24 crops:
conv 5×5×64, max-pool 3×3/2, LRN; conv 5×5×64, LRN, max-pool 3×3/2; 384; 192; linear. All but the last have a ReLU.
Its starting values are those of 2016 and later; the first versions drew the convolutions with standard deviation 1e-4.
It also adds a weight decay of 0.004 on the two full layers to the loss, which is the algorithm's to do here.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of, ending_in_classifier
from fedquilt.models.local_response_norm import LocalResponseNorm


@models.register
def cifar_cnn_mcmahan(
    classes: Size | None = None, init: Literal["tutorial", "torch"] = "tutorial", data: Data | None = None
) -> nn.Module:
    """The TensorFlow tutorial's CIFAR network on 24×24 crops, 1,068,298 parameters with 10 classes (McMahan 2017).

    `classes` are those of `data` unless given, and 10 without data; a spec fills in `data`.
    `init` chooses the starting values: the tutorial's (weights from normal distributions cut at two standard
    deviations, biases 0 or 0.1) or PyTorch's own.

    >>> import torch
    >>> model = cifar_cnn_mcmahan()
    >>> model(torch.zeros(2, 3, 24, 24)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 1068298)
    """
    # ceil_mode is TensorFlow's "SAME" on even sides: windows start at the first pixel and hang over at the last.
    # max(relu(x)) = relu(max(x)), gradients included: the ReLU after the first pooling does a quarter of the work.
    model = ending_in_classifier(
        nn.Conv2d(3, 64, 5, padding=2),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        nn.ReLU(),
        LocalResponseNorm(size=9, alpha=0.001),
        nn.Conv2d(64, 64, 5, padding=2),
        nn.ReLU(),
        LocalResponseNorm(size=9, alpha=0.001),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(6 * 6 * 64, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, classes_of(data, classes, 10)),
    )
    if init == "tutorial":
        _initialise(model)
    return model


def _initialise(model: nn.Sequential) -> None:
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer, std, bias in zip(layers, [0.05, 0.05, 0.04, 0.04, 1 / 192], [0.0, 0.1, 0.1, 0.1, 0.0], strict=True):
        nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
        assert layer.bias is not None
        nn.init.constant_(layer.bias, bias)
