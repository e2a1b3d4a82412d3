"""Images, decoded when they are needed and never all in memory.

An example is the number of an image in its source: a file, a row of a table. It is read, made so small that its shorter
side has 8/7 of the model's input (256 for 224), and then cut: for testing, the square of the model's size in the middle;
for training, a random crop, scaled and mirrored half of the time (see `random_crop`). Those that are smaller stay as they
are until they are cut. The small image is the same whether it comes from the cache or from its source, and so are the
bits of what follows.

Decoded images may be kept on disk, one NumPy file each, so that they are decoded once and not in every round.

The orientation that a camera notes in the file is not applied, as PyTorch's and TensorFlow's own readers leave it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError
from pydantic import Field
from torch import Tensor

from fedquilt.base.errors import DataError, ExampleError
from fedquilt.base.memory import require_memory
from fedquilt.data.data import Augment, Data, Prepare
from fedquilt.data.files import expanded, require_regular
from fedquilt.data.preprocess import DRAWS, random_crop, standardise

Pixels = npt.NDArray[np.uint8]
"""An image: (height, width, channels), with one channel or three."""

Scale = Literal["imagenet", "symmetric", "unit"]
"""Pixels minus ImageNet's mean by its standard deviation, a channel each; in [−1, 1]; or in [0, 1]."""

Ahead = Annotated[int, Field(ge=0)]
"""Batches that are made ready while the model trains; 0: none."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
"""What images may be; of several frames, the first is taken."""

AT_ONCE = 64
"""Images that are evaluated at a time."""

# On the scale of 0 to 255: mean and standard deviation of red, green and blue.
_SCALES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "symmetric": ((127.5,) * 3, (127.5,) * 3),
    "unit": ((0.0,) * 3, (255.0,) * 3),
}

_GREY = ("1", "L")


class ImageSource(Protocol):
    """Images as they are stored, by number."""

    def __repr__(self) -> str:
        """Say which images they are, wherever they lie."""

    def name(self, number: int) -> str:
        """Name an image, for messages."""

    def key(self, number: int) -> str:
        """Return what finds a decoded image again, and is another once the image has changed."""

    def open(self, number: int) -> BinaryIO:
        """Open an image; an ExampleError says why that cannot be done."""


class Images:
    """The images of a source, and how they are read.

    `size` is the side of what comes out; without it images stay as they are, all of one shape, grey ones with one channel.
    """

    def __init__(
        self, source: ImageSource, size: int | None, scale: Scale = "imagenet", cache: Path | None = None
    ) -> None:
        """Note where the images are; none is decoded, and without a size one is opened to learn its shape."""
        self.source = source
        self.size = size
        self.scale = scale
        self.cache = None if cache is None else ImageCache.at(cache)
        self.shape = _shape(source) if size is None else (size, size, 3)
        # As bytes and as numbers of four bytes.
        require_memory(
            f"size: {AT_ONCE} images of {self.shape[0]:,} × {self.shape[1]:,} pixels", 5 * AT_ONCE * prod(self.shape)
        )
        if scale == "imagenet" and self.shape[2] == 1:
            raise DataError(
                'scale: "imagenet" is for colour images; for grey images use "unit" or "symmetric", or set `size`'
            )

    def __repr__(self) -> str:
        """Say what decides an example's values, wherever the images lie: runs are told apart by it."""
        return f"Images({self.source!r}, size={self.size}, scale={self.scale!r})"

    def small(self, number: int) -> Pixels:
        """Read an image, from the cache where there is one; its shorter side is at most 8/7 of the size."""
        side = 0 if self.size is None else -(-self.size * 8 // 7)
        key = "" if self.cache is None else f"{self.source.key(number)}\n{side}"
        found = None if self.cache is None else self.cache.get(key)
        if found is not None:
            return found
        pixels = _decoded(self.source, number, side)
        if self.cache is not None:
            self.cache.put(key, pixels)
        return pixels

    def cut(self, number: int, drawn: npt.NDArray[np.float64] | None) -> Pixels:
        """Read an image, and cut out the middle or, with numbers drawn for it, a crop at random."""
        pixels = self.small(number)
        if self.size is None and pixels.shape == self.shape:
            return pixels
        if self.size is None:
            found, first = (" × ".join(map(str, shape)) for shape in (pixels.shape, self.shape))
            raise ExampleError(
                f"{self.source.name(number)}: the image has {found} values, but the first one has {first}; "
                "set `size`, to which images are scaled"
            )
        height, width = pixels.shape[:2]
        if drawn is None:
            # 7/8 of the shorter side: what is left of it, once made small, is the size itself.
            side = min(height, width) * 7 / 8
            return _resized(pixels, self.size, ((width - side) / 2, (height - side) / 2, side, side))
        left, top, wide, high, mirrored = random_crop(width, height, drawn)
        made = _resized(pixels, self.size, (left, top, wide, high))
        return made[:, ::-1] if mirrored else made

    def ready(self, rows: Tensor, drawn: npt.NDArray[np.float64] | None) -> Tensor:
        """Make some images ready for a model: (N, channels, height, width)."""
        height, width, channels = self.shape
        raw = np.empty((len(rows), channels, height, width), dtype=np.uint8)
        for index, number in enumerate(rows.tolist()):
            raw[index] = self.cut(number, None if drawn is None else drawn[index]).transpose(2, 0, 1)
        mean, std = (torch.tensor(values[:channels]).view(-1, 1, 1) for values in _SCALES[self.scale])
        return standardise(torch.from_numpy(raw), mean, std)


def prepared(rows: Tensor, images: Images) -> Tensor:
    """Read images by number and cut out the middle."""
    return images.ready(rows, None)


def augmented(rows: Tensor, generator: np.random.Generator, images: Images) -> Tensor:
    """Read images by number and cut them at random."""
    return images.ready(rows, generator.random((len(rows), DRAWS)))


def image_data(data: Data, images: Images, augment: bool = True, ahead: int = 0) -> Data:
    """Let a data set whose examples are numbers of images read them; those that stay as they are, are not augmented."""
    prepare: Prepare = partial(prepared, images=images)
    changed: Augment | None = partial(augmented, images=images) if augment and images.size else None
    return replace(data, prepare=prepare, augment=changed, ahead=ahead, at_once=AT_ONCE)


def _shape(source: ImageSource) -> tuple[int, int, int]:
    """Return the shape of the first image, which is not decoded for that."""
    with _opened(source, 0) as image:
        return image.height, image.width, 1 if image.mode in _GREY else 3


def _decoded(source: ImageSource, number: int, side: int) -> Pixels:
    """Decode an image, and make its shorter side `side` where it is longer; with 0, leave it as it is."""
    with _opened(source, number) as image:
        if not side:
            grey = image.mode in _GREY
            return np.asarray(image.convert("L"))[:, :, None] if grey else np.asarray(image.convert("RGB"))
        width, height = image.size
        factor = side / min(width, height)
        if factor < 1:
            to = max(side, round(width * factor)), max(side, round(height * factor))
            image.draft("RGB", to)  # a JPEG is decoded smaller at once, at most down to this
            return np.asarray(image.convert("RGB").resize(to, Image.Resampling.BILINEAR))
        return np.asarray(image.convert("RGB"))


@contextmanager
def _opened(source: ImageSource, number: int) -> Iterator[Image.Image]:
    """Open an image, of not too many pixels; what goes wrong with it inside is an ExampleError that names it."""
    try:
        # Of a known format, by content: others are read by programs that Pillow starts (EPS), or seldom.
        with source.open(number) as file, Image.open(file, formats=FORMATS) as image:
            if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
                raise Image.DecompressionBombError
            yield image
    except ExampleError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ExampleError(
            f"{source.name(number)}: the image has more than {Image.MAX_IMAGE_PIXELS} pixels; make it smaller, or raise "
            "PIL.Image.MAX_IMAGE_PIXELS if you trust it"
        ) from None
    except UnidentifiedImageError:
        raise ExampleError(
            f"{source.name(number)}: the image cannot be read: its content is damaged, or none of {', '.join(FORMATS)}"
        ) from None
    except Exception as error:
        # What Pillow raises for a damaged image depends on the format, and on what is damaged.
        raise ExampleError(f"{source.name(number)}: the image cannot be read: {error}") from error


def _resized(pixels: Pixels, size: int, part: tuple[float, float, float, float]) -> Pixels:
    """Scale a part of an image, given by left, top, width and height, to a square."""
    left, top, width, height = part
    box = (left, top, left + width, top + height)
    made = Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(made)


@dataclass(frozen=True)
class ImageCache:
    """A folder of decoded images, which several processes may fill at once.

    An image is found by a key, which is another once the image has changed. A damaged entry counts as none. Where the
    disk is full, nothing is added.
    """

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> ImageCache:
        """Use a folder, which is made if there is none."""
        try:
            expanded(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cache: the folder {folder} cannot be created: {error.strerror}") from None
        return cls(expanded(folder).absolute())

    def get(self, key: str) -> Pixels | None:
        """Return an image from the cache, if it is there."""
        try:
            entry = self._entry(key)
            require_regular(entry)
            # A mapping, and not a copy: its length is checked against the file's before anything is read.
            found = np.load(entry, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, DataError):
            return None
        sound = found.dtype == np.uint8 and found.ndim == 3 and found.shape[2] in (1, 3) and found.size
        return found if sound else None

    def put(self, key: str, pixels: Pixels) -> None:
        """Add an image: written aside and renamed, so that no one ever reads half of it."""
        with suppress(OSError):
            entry = self._entry(key)
            entry.parent.mkdir(exist_ok=True)
            handle, aside = tempfile.mkstemp(dir=entry.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    np.save(file, pixels, allow_pickle=False)
                Path(aside).replace(entry)
            except OSError:
                Path(aside).unlink(missing_ok=True)

    def _entry(self, key: str) -> Path:
        digest = hashlib.blake2b(os.fsencode(key), digest_size=20).hexdigest()
        return self.folder / digest[:2] / f"{digest[2:]}.npy"
