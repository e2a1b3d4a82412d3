"""Random crops of CIFAR images, mirrored, changed in contrast and whitened, as in TensorFlow's tutorial.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3: "cropping
the images to 24x24, randomly flipping left-right and adjusting the contrast, brightness and whitening".

The tutorial, `tensorflow/models/tutorials/image/cifar10/cifar10_input.py`, on numbers from 0 to 255 without clipping:
random 24×24 crop; mirrored or not; a shift b ~ U(−63, 63) of all pixels (brightness); x ↦ f·(x − m_c) + m_c with
f ~ U(0.2, 1.8) and m_c the mean of channel c (contrast); then (x − mean) / max(std, 1/√pixels) over the whole image
(whitening). For testing: the centre crop, whitened.

The brightness is not drawn here, because the whitening takes it away again, as the tutorial itself notes: it moves m_c
and the mean by b alike. What is left is (f·(x − m_c) + m_c − m) / max(s, 1/√pixels), with m the mean of the m_c and
s² = f²·mean((x − m_c)²) + mean((m_c − m)²): each channel of each image is scaled and shifted once.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

SIDE = 24


def augment(raw: Tensor, generator: np.random.Generator) -> Tensor:
    """Crop at random, mirror half of the images, change the contrast and whiten (McMahan 2017).

    Each image takes four numbers from the generator, so that its changes depend on its position in the batch and not on
    how many follow.

    >>> raw = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    >>> augment(raw, np.random.default_rng(0)).shape
    torch.Size([2, 3, 24, 24])
    """
    drawn = torch.from_numpy(generator.random((len(raw), 4)))
    positions = raw.shape[-1] - SIDE + 1
    top, left = (drawn[:, :2] * positions).long().unbind(1)
    crops = _crop(raw, top, left, mirrored=drawn[:, 2] < 0.5)
    return _whiten(crops, contrast=(0.2 + 1.6 * drawn[:, 3]).float().view(-1, 1, 1))


def prepare(raw: Tensor) -> Tensor:
    """Cut out the centre and whiten (McMahan 2017).

    >>> prepare(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 3, 24, 24])
    """
    edge = (raw.shape[-1] - SIDE) // 2
    return _whiten(raw[:, :, edge : edge + SIDE, edge : edge + SIDE].flatten(2), contrast=torch.ones(1))


def _crop(raw: Tensor, top: Tensor, left: Tensor, mirrored: Tensor) -> Tensor:
    """Cut a square out of every image, and give its pixels a channel in one row."""
    span = torch.arange(SIDE)
    rows = top[:, None] + span
    columns = left[:, None] + torch.where(mirrored[:, None], span.flip(0), span)
    positions = (rows * raw.shape[-1])[:, :, None] + columns[:, None, :]
    return raw.flatten(2).gather(2, positions.view(len(raw), 1, -1).expand(-1, raw.shape[1], -1))


def _whiten(crops: Tensor, contrast: Tensor) -> Tensor:
    x = crops.float()
    pixels = x.shape[1] * x.shape[2]
    means = x.mean(dim=2, keepdim=True)
    x -= means
    # The mean goes first: E[x²] − m² would lose the digits of a nearly uniform image.
    spread = torch.linalg.vecdot(x, x).sum(dim=1).view(-1, 1, 1) * contrast.square() / pixels
    offsets = means - means.mean(dim=1, keepdim=True)
    std = (spread + offsets.square().mean(dim=1, keepdim=True)).sqrt_().clamp_min_(pixels**-0.5)
    return torch.addcmul(offsets / std, x, contrast / std).view(len(x), -1, SIDE, SIDE)
