"""Images from files, decoded when they are needed and never all in memory.

An example is the number of a file. It is read, made so small that its shorter side has 8/7 of the model's input (256 for
224), and then cut: for testing, the square of the model's size in the middle; for training, a random crop, scaled and
mirrored half of the time (see `random_crop`). Those that are smaller stay as they are until they are cut. The small
image is the same whether it comes from the cache or from the file, and so are the bits of what follows.

The orientation that a camera notes in the file is not applied, as PyTorch's and TensorFlow's own readers leave it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from fedquilt.data.data import Augment, Data, Prepare, Split
from fedquilt.data.image_cache import ImageCache, Pixels
from fedquilt.data.random_crop import DRAWS, random_crop
from fedquilt.data.scale import standardise
from fedquilt.errors import ExampleError

Scale = Literal["imagenet", "symmetric", "unit"]
"""Pixels minus ImageNet's mean by its standard deviation, a channel each; in [−1, 1]; or in [0, 1]."""

Ahead = Annotated[int, Field(ge=0)]
"""Batches that are made ready while the model trains; 0: none."""

AT_ONCE = 64
"""Images that are evaluated at a time."""

# On the scale of 0 to 255: mean and standard deviation of red, green and blue.
_SCALES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "symmetric": ((127.5,) * 3, (127.5,) * 3),
    "unit": ((0.0,) * 3, (255.0,) * 3),
}


class ImageFiles:
    """Image files by number, and how they are read: `names` are paths in `folder`, `size` the side of what comes out.

    `advice` ends the message of a file that is missing.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        size: int,
        scale: str = "imagenet",
        cache: Path | None = None,
        advice: str = "",
    ) -> None:
        """Note where the files are; none is opened."""
        self.folder = folder
        self.size = size
        self.scale = scale
        self.cache = None if cache is None else ImageCache.at(cache)
        self.advice = advice
        # One array of bytes: the workers of a forked engine share it, where a list would be copied page by page.
        self._names = np.array([os.fsencode(name) for name in names])

    def __repr__(self) -> str:
        """Say what decides an example's values, wherever the files lie: runs are told apart by it."""
        digest = hashlib.sha256(b"\0".join(self._names.tolist())).hexdigest()
        return f"ImageFiles({len(self._names)} files, names={digest}, size={self.size}, scale={self.scale!r})"

    def path(self, number: int) -> Path:
        """Return the path of a file."""
        return self.folder / os.fsdecode(bytes(self._names[number]))

    def small(self, number: int) -> Pixels:
        """Read an image whose shorter side is at most 8/7 of the size, from the cache where there is one."""
        path, side = self.path(number), -(-self.size * 8 // 7)
        try:
            found = None if self.cache is None else self.cache.get(path, side)
            if found is not None:
                return found
            pixels = _decoded(path, side)
        except FileNotFoundError:
            raise ExampleError(f"{path}: there is no such image file{self.advice and f'. {self.advice}'}") from None
        if self.cache is not None:
            self.cache.put(path, side, pixels)
        return pixels

    def cut(self, number: int, drawn: npt.NDArray[np.float64] | None) -> Pixels:
        """Read an image, and cut out the middle or, with numbers drawn for it, a crop at random."""
        pixels = self.small(number)
        height, width = pixels.shape[:2]
        if drawn is None:
            # 7/8 of the shorter side: what is left of it, once made small, is the size itself.
            side = min(height, width) * 7 / 8
            return _resized(pixels, self.size, ((width - side) / 2, (height - side) / 2, side, side))
        left, top, wide, high, mirrored = random_crop(width, height, drawn)
        made = _resized(pixels, self.size, (left, top, wide, high))
        return made[:, ::-1] if mirrored else made

    def ready(self, rows: Tensor, drawn: npt.NDArray[np.float64] | None) -> Tensor:
        """Make some images ready for a model: (N, 3, size, size)."""
        raw = np.empty((len(rows), 3, self.size, self.size), dtype=np.uint8)
        for place, number in enumerate(rows.tolist()):
            raw[place] = self.cut(number, None if drawn is None else drawn[place]).transpose(2, 0, 1)
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in _SCALES[self.scale])
        return standardise(torch.from_numpy(raw), mean, std)


def prepared(rows: Tensor, files: ImageFiles) -> Tensor:
    """Read images by number and cut out the middle."""
    return files.ready(rows, None)


def augmented(rows: Tensor, generator: np.random.Generator, files: ImageFiles) -> Tensor:
    """Read images by number and cut them at random."""
    return files.ready(rows, generator.random((len(rows), DRAWS)))


def image_data(
    name: str, files: ImageFiles, train: Split, test: Split, classes: int, augment: bool = True, ahead: int = 0
) -> Data:
    """Make a data set whose examples are numbers of files."""
    prepare: Prepare = partial(prepared, files=files)
    changed: Augment | None = partial(augmented, files=files) if augment else None
    return Data(name, train, test, classes, prepare, changed, ahead=ahead, at_once=AT_ONCE)


def _decoded(path: Path, side: int) -> Pixels:
    """Decode a file, and make its shorter side `side` where it is longer."""
    try:
        with Image.open(path) as image:
            width, height = image.size
            if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
                raise Image.DecompressionBombError
            factor = side / min(width, height)
            if factor < 1:
                to = max(side, round(width * factor)), max(side, round(height * factor))
                image.draft("RGB", to)  # a JPEG is decoded smaller at once, at most down to this
                return np.asarray(image.convert("RGB").resize(to, Image.Resampling.BILINEAR))
            return np.asarray(image.convert("RGB"))
    except FileNotFoundError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ExampleError(
            f"{path}: the image has more than {Image.MAX_IMAGE_PIXELS} pixels; make it smaller, or raise "
            "PIL.Image.MAX_IMAGE_PIXELS if you trust the file"
        ) from None
    except Exception as error:
        # What Pillow raises for a damaged file depends on the format, and on what is damaged.
        raise ExampleError(f"{path}: the image cannot be read: {error}") from error


def _resized(pixels: Pixels, size: int, part: tuple[float, float, float, float]) -> Pixels:
    """Scale a part of an image, given by left, top, width and height, to a square."""
    left, top, width, height = part
    box = (left, top, left + width, top + height)
    made = Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(made)
