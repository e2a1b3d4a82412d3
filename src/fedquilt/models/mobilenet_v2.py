"""MobileNetV2 with group normalisation.

Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", table 2; Wu and He 2018, "Group
Normalization". It is the model of Hsu 2020, section 6.5: "We replaced BatchNorm with GroupNorm", and, for landmarks, "a
64-dimensional bottleneck layer between the 1280-dimensional features and the softmax classifier", for which it names no
activation, and which has none here. Nor does it name the number of groups; 8 divides the width of every layer.

A block widens its c channels to t·c by a 1×1 convolution (none where t = 1), convolves each by itself (3×3), and comes
back to c′ by a 1×1 convolution without activation; where c = c′ and the stride is 1, its input is added. Every convolution
has a normalisation, whose 2 parameters a channel stand for its bias: a layer of a → b channels has a·b + 2b parameters, one
of k channels by themselves 9k + 2k. So a block has c·tc + 2tc (if t > 1) + 11·tc + tc·c′ + 2c′:

    the first convolution, 3 → 32:                                                  27·32 + 2·32 =       928
    16:   one block from 32, t = 1:                                                                       896
    24:   from 16: 5,136, then 8,832:                                                                   13,968
    32:   from 24: 10,000, then 2 × 14,848:                                                             39,696
    64:   from 32: 21,056, then 3 × 54,272:                                                            183,872
    96:   from 64: 66,624, then 2 × 118,272:                                                           303,168
    160:  from 96: 155,264, then 2 × 320,000:                                                          795,264
    320:  one block from 160:                                                                          473,920
    the last convolution, 320 → 1,280:                                                                 412,160
                                                                                                     2,223,872

With 1,203 classes the classifier has 1,281·1,203 = 1,541,043 more, 3,764,915 together. A bottleneck of 64 has
1,281·64 = 81,984 and, with 2,028 classes, a classifier of 65·2,028 = 131,820: 2,437,676 together.

Tensors have the names that torchvision gives them, save for the classifier, so that weights of its MobileNetV2 with
`GroupNorm` as `norm_layer` can be loaded.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from torch import Tensor, nn

from fedquilt.base.arguments import Positive, Size
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.data.fetch.folders import own_file
from fedquilt.models.building import classes_of
from fedquilt.models.weights import load_weights, unlike

# Table 2: expansion t, channels c, blocks n, stride s of the first.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
FIRST, LAST = 32, 1280


def widened(channels: int, width: float) -> int:
    """Return a number of channels times the width: the nearest multiple of 8 that does not lose a tenth.

    >>> widened(32, 1.0), widened(24, 0.5), widened(24, 0.35)
    (32, 16, 8)
    """
    nearest = max(8, int(channels * width + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels * width else nearest


def _convolution(channels: int, out: int, kernel: int, stride: int, alone: bool, groups: int) -> list[nn.Module]:
    """Return a convolution, over all channels or of each by itself, and its normalisation."""
    convolution = nn.Conv2d(
        channels, out, kernel, stride, padding=kernel // 2, groups=channels if alone else 1, bias=False
    )
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out")
    return [convolution, nn.GroupNorm(groups, out)]


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, and come back; the input is added where it has the same shape."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int, groups: int) -> None:
        super().__init__()
        wide = channels * expansion
        layers = []
        if expansion > 1:
            layers.append(nn.Sequential(*_convolution(channels, wide, 1, 1, False, groups), nn.ReLU6()))
        layers.append(nn.Sequential(*_convolution(wide, wide, 3, stride, True, groups), nn.ReLU6()))
        self.conv = nn.Sequential(*layers, *_convolution(wide, out, 1, 1, False, groups))
        self.same = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        made: Tensor = self.conv(x)
        return x + made if self.same else made


class MobileNetV2(nn.Module):
    """A convolution, seventeen blocks, a convolution, the mean over the image, and a linear classifier."""

    classifier_layer = "classifier"

    def __init__(self, classes: int, width: float, groups: int, bottleneck: int | None) -> None:
        super().__init__()
        channels = widened(FIRST, width)
        layers: list[nn.Module] = [nn.Sequential(*_convolution(3, channels, 3, 2, False, groups), nn.ReLU6())]
        for expansion, wanted, blocks, stride in STAGES:
            for block in range(blocks):
                out = widened(wanted, width)
                layers.append(InvertedResidual(channels, out, stride if block == 0 else 1, expansion, groups))
                channels = out
        last = widened(LAST, max(width, 1.0))
        layers.append(nn.Sequential(*_convolution(channels, last, 1, 1, False, groups), nn.ReLU6()))
        self.features = nn.Sequential(*layers)
        self.bottleneck = nn.Identity() if bottleneck is None else _linear(last, bottleneck)
        self.classifier = _linear(bottleneck or last, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, 3, H, W) to scores (N, classes)."""
        features = self.bottleneck(self.features(x).mean((2, 3)))
        scores: Tensor = self.classifier(features)
        return scores


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)
    return layer


@models.register
def mobilenet_v2(
    classes: Size | None = None,
    width: Positive = 1.0,
    groups: Size = 8,
    bottleneck: Size | None = None,
    pretrained: Path | None = None,
    data: Data | None = None,
) -> nn.Module:
    """MobileNetV2 with group normalisation, 3,764,915 parameters with 1,203 classes (Sandler 2018; Hsu 2020).

    - `classes` are those of `data` unless given, and 1,203 without data; a spec fills in `data`.
    - `width` multiplies the channels of every layer, `groups` is the number of groups of a normalisation.
    - `bottleneck` puts a linear layer of so many units before the classifier: 64 for Hsu's landmarks.
    - `pretrained` is a safetensors file of weights, such as ImageNet's. A classifier of another shape stays as it is
      initialised, with a warning; weights with batch normalisation's statistics are refused.

    The input is (N, 3, H, W), of 32×32 or more.

    >>> import torch
    >>> model = mobilenet_v2(classes=2028, bottleneck=64)
    >>> model(torch.zeros(2, 3, 64, 64)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 2028]), 2437676)
    """
    try:
        model = MobileNetV2(classes_of(data, classes, 1203), width, groups, bottleneck)
    except ValueError:
        raise SpecError(f"groups: {groups} does not divide the channels of every layer; 8 always does") from None
    if pretrained is not None:
        path = own_file(pretrained)
        left = load_weights(model, path, skip=unlike(model, path, ("bottleneck", "classifier")))
        if left:
            names = ", ".join(sorted(left))
            warnings.warn(
                f"{path}: these layers keep their initial values: the file has no matching tensor: {names}",
                RuntimeWarning,
                stacklevel=3,
            )
    return model
