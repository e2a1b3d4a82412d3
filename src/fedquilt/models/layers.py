"""Stacks of layers that several models have: convolutions with pooling, and a classifier at the end."""

from __future__ import annotations

from torch import nn


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

    >>> import torch
    >>> nn.Sequential(*convolved_and_pooled(1, 32))(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 32, 14, 14])
    """
    return nn.Conv2d(channels, filters, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()
