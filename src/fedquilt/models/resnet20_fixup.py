"""ResNet-20 for 32×32 images without normalisation, with Fixup initialisation.

Zhang, Dauphin and Ma 2019, "Fixup Initialization: Residual Learning Without Normalization": of every residual branch the
last layer starts at 0 and the others at He's values times L^(−1/(2m−2)), L branches of m layers; the classifier starts at
0; a scalar bias, 0 at first, stands before every convolution, activation and linear layer, and a scalar multiplier, 1 at
first, in every branch. Here L = 9 and m = 2, so that the factor is 9^(−1/2) = 1/3.

The network is that of He et al. 2016, "Deep Residual Learning for Image Recognition", section 4.2: three stages of three
blocks with 16, 32 and 64 channels; where a stage halves the image, the shortcut takes every second pixel and adds channels
of 0 (its option A). Where the Fixup paper leaves room, its authors' code for CIFAR decides: He's values are normal with
variance 2 / fan-out, the very first convolution keeps PyTorch's own, the shortcut starts after the branch's first bias.
That code also trains biases and multipliers with a tenth of the learning rate, which is the algorithm's to do.

The vector of parameters starts with a norm of about 9: the blocks' first convolutions have an expected squared norm of
2/9 for each input channel, 64 together, the nine multipliers 9, and the very first convolution 16/3.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.compute.kernels.rectified import KERNEL, rectified, rectified_by_kernel
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of

WIDTHS = (16, 32, 64)
BLOCKS = 3


class FixupBlock(nn.Module):
    """Two convolutions beside a shortcut; with more channels out than in, the image is halved."""

    compiled_as: type[nn.Module]
    """What takes its place where a run is compiled: see `fedquilt.compute.kernels`."""

    rectified = staticmethod(rectified)

    def __init__(self, channels_in: int, channels_out: int, branches: int) -> None:
        """Make the branch of a network that has `branches` of them."""
        super().__init__()
        self.more = channels_out - channels_in
        self.stride = 2 if self.more else 1
        self.bias_before_first = nn.Parameter(torch.zeros(1))
        self.first = nn.Conv2d(channels_in, channels_out, 3, stride=self.stride, padding=1, bias=False)
        self.bias_after_first = nn.Parameter(torch.zeros(1))
        self.bias_before_second = nn.Parameter(torch.zeros(1))
        self.second = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.multiplier = nn.Parameter(torch.ones(1))
        self.bias_after_second = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.first.weight, std=sqrt(2 / (channels_out * 3 * 3)) * branches**-0.5)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut."""
        shifted = x + self.bias_before_first
        branch = self.rectified(self.first(shifted), self.bias_after_first, after=self.bias_before_second)
        shortcut = self._halved(shifted) if self.more else x
        return self.rectified(self.second(branch), self.bias_after_second, scale=self.multiplier, shortcut=shortcut)

    def _halved(self, x: Tensor) -> Tensor:
        every_second = functional.avg_pool2d(x, 1, stride=self.stride)
        return functional.pad(every_second, (0, 0, 0, 0, 0, self.more))


class CompiledFixupBlock(FixupBlock):
    """The same with what stands around its ReLUs computed by a kernel."""

    kernel = KERNEL
    rectified = staticmethod(rectified_by_kernel)


FixupBlock.compiled_as = CompiledFixupBlock
CompiledFixupBlock.compiled_as = CompiledFixupBlock


class FixupResNet20(nn.Module):
    """A convolution, nine blocks, the mean over the image and a linear classifier."""

    classifier_layer = "classifier"

    def __init__(self, classes: int) -> None:
        super().__init__()
        widths = [width for width in WIDTHS for _ in range(BLOCKS)]
        self.first = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bias_after_first = nn.Parameter(torch.zeros(1))
        self.blocks = nn.Sequential(
            *(
                FixupBlock(before, after, len(widths))
                for before, after in zip([WIDTHS[0], *widths], widths, strict=False)
            )
        )
        self.bias_before_classifier = nn.Parameter(torch.zeros(1))
        self.classifier = nn.Linear(WIDTHS[-1], classes)
        nn.init.zeros_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, 3, H, W) to scores (N, classes)."""
        x = self.blocks(functional.relu(self.first(x) + self.bias_after_first))
        scores: Tensor = self.classifier(x.mean((2, 3)) + self.bias_before_classifier)
        return scores


@models.register
def resnet20_fixup(classes: Size | None = None, data: Data | None = None) -> nn.Module:
    """ResNet-20 without normalisation, with Fixup initialisation, 268,393 parameters with 10 classes (Zhang 2019).

    `classes` are those of `data` unless given, and 10 without data; a spec fills in `data`.
    It is the model of Ozdayi 2020, section 4.1. The input is (N, 3, 32, 32).

    >>> model = resnet20_fixup()
    >>> model(torch.zeros(2, 3, 32, 32)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 268393)
    """
    return FixupResNet20(classes_of(data, classes, 10))
