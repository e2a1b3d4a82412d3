"""Convolutions of images with one channel, whose results have channels last.

PyTorch goes by the strides of what it is given, and those of one channel do not say where channels are to come. It then
puts them first, which makes pooling slow.
"""

from __future__ import annotations

from torch import Tensor, nn


class OneChannelConv2d(nn.Conv2d):
    """`nn.Conv2d` of one channel that tells PyTorch to put channels last."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return the convolution, channels last in memory."""
        if input.dim() == 4 and input.is_contiguous():
            height, width = input.shape[2:]
            input = input.as_strided(input.shape, (height * width, 1, width, 1))  # noqa: A001
        return super().forward(input)
