"""How raw pixels and features become a model's input: scales, and random crops.

A crop takes the same number of draws for every image, so that it depends on the image's position in the order of training,
and not on how many images are made ready at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import exp, log, sqrt
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.base.types import Floats

TRIES = 10
DRAWS = 2 * TRIES + 3
"""Numbers drawn for `random_crop`: area and ratio of every try, the position, and whether it is mirrored."""

AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)

SIDE = 24
"""The side of McMahan's crops."""


def to_unit(raw: Tensor) -> Tensor:
    """Scale bytes to [0, 1]."""
    return raw.float().div_(255)


def standardise(raw: Tensor, mean: float | Tensor, std: float | Tensor) -> Tensor:
    """Subtract a mean from bytes and divide by a standard deviation, both on the scale of 0 to 255."""
    return raw.float().sub_(mean).div_(std)


Pixels = Literal["none", "centre", "standardise"]
"""What becomes of grey pixels: in [0, 1]; in [−0.5, 0.5]; or with mean 0 and standard deviation 1."""


def pixels_as(pixels: Pixels, mean: float, std: float) -> Callable[[Tensor], Tensor]:
    """Return what makes a model's input of grey pixels, bytes; `mean` and `std` are those of the set in [0, 1].

    >>> [pixels_as(each, 0.13, 0.31)(torch.tensor([0, 255])).tolist() for each in ("none", "centre")]
    [[0.0, 1.0], [-0.5, 0.5]]
    """
    if pixels == "none":
        return to_unit
    if pixels == "centre":
        return partial(standardise, mean=127.5, std=255.0)
    return partial(standardise, mean=mean * 255, std=std * 255)


def to_range(x: Floats, low: Floats, high: Floats) -> Floats:
    """Scale features from [low, high] to [−1, 1]; those without a range become 0.

    >>> to_range(np.array([[0.0, 7.0], [3.0, 7.0]]), low=np.array([0.0, 7.0]), high=np.array([4.0, 7.0]))
    array([[-1. ,  0. ],
           [ 0.5,  0. ]])
    """
    width = high - low
    scaled = 2 * (x - low) / np.where(width > 0, width, 1) - 1
    return np.where(width > 0, scaled, 0)


class Crop(NamedTuple):
    """A part of an image, in pixels, and whether it is mirrored."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool


def random_crop(width: int, height: int, drawn: npt.NDArray[np.float64]) -> Crop:
    """Return the crop of an image, of changing size and shape, that `DRAWS` numbers between 0 and 1 decide.

    Szegedy et al. 2015, "Going Deeper with Convolutions", section 6: a crop covers 8% to 100% of the image's area, evenly
    drawn, and its sides have a ratio between 3/4 and 4/3. Here the ratio's logarithm is drawn evenly. A crop that is larger
    than the image is drawn again, up to ten times; then the centre is taken, with the ratio as close as the image allows.

    >>> random_crop(640, 480, np.full(DRAWS, 0.5))
    Crop(left=117, top=37, width=407, height=407, mirrored=False)
    """
    wide, high = _sides(width, height, drawn)
    left, top, mirrored = drawn[-3:]
    return Crop(int(left * (width - wide + 1)), int(top * (height - high + 1)), wide, high, bool(mirrored < 0.5))


def _sides(width: int, height: int, drawn: npt.NDArray[np.float64]) -> tuple[int, int]:
    least, most = log(RATIO[0]), log(RATIO[1])
    for share, aspect in drawn[: 2 * TRIES].reshape(TRIES, 2).tolist():
        area = width * height * (AREA[0] + (AREA[1] - AREA[0]) * share)
        ratio = exp(least + (most - least) * aspect)
        wide, high = round(sqrt(area * ratio)), round(sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return wide, high
    return min(width, max(1, round(height * RATIO[1]))), min(height, max(1, round(width / RATIO[0])))


def random_crop_whitened(raw: Tensor, generator: np.random.Generator) -> Tensor:
    """Crop CIFAR images at random, mirror half of them, change the contrast and whiten.

    McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3: "cropping
    the images to 24x24, randomly flipping left-right and adjusting the contrast, brightness and whitening". That is
    TensorFlow's tutorial, `tensorflow/models/tutorials/image/cifar10/cifar10_input.py`, on numbers from 0 to 255 without
    clipping: random 24×24 crop; mirrored or not; a shift b ~ U(−63, 63) of all pixels (brightness); x ↦ f·(x − m_c) + m_c
    with f ~ U(0.2, 1.8) and m_c the mean of channel c (contrast); then (x − mean) / max(std, 1/√pixels) over the whole
    image (whitening).

    The brightness is not drawn here, because the whitening takes it away again, as the tutorial itself notes: it moves m_c
    and the mean by b alike. What is left is (f·(x − m_c) + m_c − m) / max(s, 1/√pixels), with m the mean of the m_c and
    s² = f²·mean((x − m_c)²) + mean((m_c − m)²): each channel of each image is scaled and shifted once.

    >>> random_crop_whitened(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), np.random.default_rng(0)).shape
    torch.Size([2, 3, 24, 24])
    """
    drawn = torch.from_numpy(generator.random((len(raw), 4)))
    top, left = (drawn[:, :2] * (raw.shape[-1] - SIDE + 1)).long().unbind(1)
    mirrored, span = drawn[:, 2] < 0.5, torch.arange(SIDE)
    rows = top[:, None] + span
    columns = left[:, None] + torch.where(mirrored[:, None], span.flip(0), span)
    pixels = (rows * raw.shape[-1])[:, :, None] + columns[:, None, :]
    crops = raw.flatten(2).gather(2, pixels.view(len(raw), 1, -1).expand(-1, raw.shape[1], -1))
    return _whiten(crops, contrast=(0.2 + 1.6 * drawn[:, 3]).float().view(-1, 1, 1))


def centre_whitened(raw: Tensor) -> Tensor:
    """Cut out the centre of CIFAR images and whiten it, for testing (McMahan 2017)."""
    edge = (raw.shape[-1] - SIDE) // 2
    return _whiten(raw[:, :, edge : edge + SIDE, edge : edge + SIDE].flatten(2), contrast=torch.ones(1))


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
