"""How a model says which of its layers is the classifier: by the attribute `classifier_layer`, that layer's name.

The classifier is the last linear layer, and its inputs are the model's features. Methods that look at features find them
there; a model of the user's own takes part by the same attribute.
"""

from __future__ import annotations

from torch import nn


def ending_in_classifier(*layers: nn.Module) -> nn.Sequential:
    """Stack layers, and name the last one, which is linear, as the classifier.

    >>> model = ending_in_classifier(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> model.classifier_layer, model.get_submodule(model.classifier_layer)
    ('2', Linear(in_features=3, out_features=2, bias=True))
    """
    model = nn.Sequential(*layers)
    model.classifier_layer = str(len(layers) - 1)  # type: ignore[assignment]
    return model
