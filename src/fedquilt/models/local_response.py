"""Local response normalisation over neighbouring channels (Krizhevsky et al. 2012, section 3.3), with exponent 3/4."""

from __future__ import annotations

from torch import Tensor, nn


class LocalResponseNorm(nn.Module):
    """Divide x by (1 + α·mean of x² over the `size` channels around it)^(3/4).

    The same function as `nn.LocalResponseNorm(size, alpha, 0.75, 1.0)`, which spends most of its time in a pooling over
    three dimensions and a general power. Here the sum is a product with a band matrix, and the power two square roots.

    TensorFlow's `lrn(x, 4, bias=1.0, alpha=0.001 / 9, beta=0.75)` is `LocalResponseNorm(size=9, alpha=0.001)`: it takes
    a radius for the size and multiplies the sum, not the mean.

    >>> import torch
    >>> LocalResponseNorm(size=3, alpha=3.0)(torch.ones(1, 4, 1, 1)).flatten() ** (-4 / 3)
    tensor([3.0000, 4.0000, 4.0000, 3.0000])
    """

    def __init__(self, size: int, alpha: float) -> None:
        """Fix the width, an odd number of channels, and the strength."""
        super().__init__()
        self.radius = size // 2
        self.scale = alpha / size

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (N, C, H, W)."""
        channels = x.shape[1]
        band = x.new_full((channels, channels), self.scale).tril(self.radius).triu(-self.radius)
        root = (band @ x.square().flatten(2) + 1.0).rsqrt().view_as(x)
        return x * (root * root.sqrt())
