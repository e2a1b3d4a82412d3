"""Random crops of changing size and shape, as image classifiers are trained on.

Szegedy et al. 2015, "Going Deeper with Convolutions", section 6: a crop covers 8% to 100% of the image's area, evenly
drawn, and its sides have a ratio between 3/4 and 4/3. Here the ratio's logarithm is drawn evenly. A crop that is larger
than the image is drawn again, up to ten times; then the centre is taken, with the ratio as close as the image allows.

Every image takes the same number of draws, so that its crop depends on its position in the order of training, and not on
how many images are made ready at once.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

TRIES = 10
DRAWS = 2 * TRIES + 3
"""Numbers drawn for an image: area and ratio of every try, the position, and whether it is mirrored."""

AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


class Crop(NamedTuple):
    """A part of an image, in pixels, and whether it is mirrored."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool


def random_crop(width: int, height: int, drawn: npt.NDArray[np.float64]) -> Crop:
    """Return the crop of an image that numbers between 0 and 1 decide, `DRAWS` of them.

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
