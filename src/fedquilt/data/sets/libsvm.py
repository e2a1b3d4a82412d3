"""Eight data sets of the LIBSVM page, as used by Wei et al. 2022.

Chang and Lin 2011, "LIBSVM: A Library for Support Vector Machines",
https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets; Wei et al. 2022, "Federated Learning for Non-IID Data: From Theory
to Algorithm", section 5.1 and Table 1. The published svmlight files, in a folder `libsvm`, plain or packed.

Table 1 gives vehicle 500 examples to train and 446 to test, but the set has 846. Here 500 are drawn to train, and the
other 346 test.
"""

from __future__ import annotations

import functools
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from fedquilt.base.arguments import Seed
from fedquilt.base.errors import DataError
from fedquilt.base.registry import datasets
from fedquilt.base.rng import generator
from fedquilt.base.types import Floats
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.published import DownloadSource, File, PublishedData, publish
from fedquilt.data.files import read_unpacked, require_digest
from fedquilt.data.preprocess import to_range

Name = Literal["a1a", "svmguide1", "splice", "vehicle", "dna", "pendigits", "satimage", "usps"]


@dataclass(frozen=True)
class LibsvmFile:
    """A file of a set: how many examples it has, and the digest of its numbers, where it is known."""

    file: str
    rows: int
    digest: str | None


@dataclass(frozen=True)
class Set:
    """A set: what it is about, its classes and features, and its files; without a second one it is split here."""

    about: str
    classes: int
    features: int
    train: LibsvmFile
    test: LibsvmFile | None
    ending: str = ""


# Of `canonical` numbers, taken from copies of the files: the page publishes none. That of usps is open: its pixels are
# smoothed, and copies differ in the last digits.
DIGESTS = {
    "a1a": "12aa90c4ef0a1bd0797ae942d34b1d63511282d9cb8a688020bfe04bd4b29722",
    "a1a.t": "b114b7f7cced9bb25152a52b0fa6a2248700dfe7b4330715e2cfbf8bf26e9925",
    "svmguide1": "3e9d43a28706a69a9178829dde21e93606636048f3861b5c9d27310eea04aba8",
    "svmguide1.t": "86906d183acfca62157fe25d182338922869df9061746c11cde2511b4060bb23",
    "splice": "e5f54142709d1d135985b0414c01fc5e32174ab4de882795324f4726e71d202d",
    "splice.t": "ab3960c18789867ab77c98385b87012d2b31484e11d170bfdcd3a2c49c67df2e",
    "vehicle.scale": "7d39f04b7611119e56ad6d4f15de38758e698172fc53d4fcbd39bf11526bca69",
    "dna.scale": "44f887a57cf25845a25d69d49d53ce34c224c532a383f0da60d767d3de2bfcf4",
    "dna.scale.t": "681de816232f64ab497606187bf85838f88d81710405f58f195188399d7dbce6",
    "pendigits": "a9c03cc22b62feb602563831be2c219060ba42b96288178e19817330df4327a6",
    "pendigits.t": "5c508da7c1f13c28d563ec56568418cfab38c5db31afbc83a172c54e16bffc8a",
    "satimage.scale": "ebf5e1745753e1f28ecde241be1caf7933cab2e08f144a1f017fda918854c050",
    "satimage.scale.t": "bfc3c3c3ed06a27698f945bd78d409894fbef79664b11481c2ef354522922679",
    "usps.t": "689a9bed7c41bb63028a0e01b8abb93abc06a5b67a1646bce308eb9265b356b0",
}


def _file(name: str, rows: int) -> LibsvmFile:
    return LibsvmFile(name, rows, DIGESTS.get(name))


# What it is about, the number of classes, the number of features, the training file, the test file.
SETS = {
    "a1a": Set(
        "who earns more than 50,000 dollars a year, 123 yes-or-no features",
        2,
        123,
        _file("a1a", 1605),
        _file("a1a.t", 30956),
    ),
    "svmguide1": Set(
        "events of astroparticle physics, 4 features", 2, 4, _file("svmguide1", 3089), _file("svmguide1.t", 4000)
    ),
    "splice": Set("splice junctions of DNA, 60 bases", 2, 60, _file("splice", 1000), _file("splice.t", 2175)),
    "vehicle": Set("silhouettes of four kinds of vehicle, 18 features", 4, 18, _file("vehicle.scale", 846), None),
    "dna": Set(
        "splice junctions of DNA in three classes, 180 yes-or-no features",
        3,
        180,
        _file("dna.scale", 2000),
        _file("dna.scale.t", 1186),
    ),
    "pendigits": Set(
        "digits written with a pen, 8 points of its path", 10, 16, _file("pendigits", 7494), _file("pendigits.t", 3498)
    ),
    "satimage": Set(
        "land use by satellite, 3×3 pixels in 4 bands",
        6,
        36,
        _file("satimage.scale", 4435),
        _file("satimage.scale.t", 2000),
    ),
    "usps": Set("digits of postal codes, 16×16 pixels", 10, 256, _file("usps", 7291), _file("usps.t", 2007), ".bz2"),
}

VEHICLE_TRAIN = 500

_NUMBER = rb"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_LINE = re.compile(rb"\s*(%b)((?:\s+\d{1,9}:%b)*)\s*" % (_NUMBER, _NUMBER))


@datasets.register
def libsvm(
    set: Name,  # noqa: A002 – it is what a spec calls it
    scale: bool = True,
    seed: Seed = 0,
    check: bool = True,
) -> Data:
    """One of eight LIBSVM data sets, with its published training and test part (Chang and Lin 2011).

    `scale` brings every feature to [−1, 1] by its range over the training part; test values may lie outside, and a
    feature that never changes there becomes 0. Without it features are as published: unscaled in `svmguide1`, `splice`
    and `pendigits`, which random Fourier features make nothing of. Labels are numbered from 0, in their order. `seed`
    decides which 500 of the 846 examples of `vehicle` are for training; the other sets have a test file.

    `check` refuses files whose numbers have not the digests of those that were at hand when this was written; there is
    none for usps.

    >>> data = libsvm("satimage")  # doctest: +SKIP
    >>> data.train.x.shape, len(data.test), data.classes  # doctest: +SKIP
    (torch.Size([4435, 36]), 2000, 6)
    """
    about = SETS[set]
    x, y = read_part(set, about.train, check)
    if about.test is None:
        order = generator(seed, "test split").permutation(len(y))
        chosen, left = np.sort(order[:VEHICLE_TRAIN]), np.sort(order[VEHICLE_TRAIN:])
        x, y, x_test, y_test = x[chosen], y[chosen], x[left], y[left]
    else:
        x_test, y_test = read_part(set, about.test, check)
    labels = np.unique(y)
    if len(labels) != about.classes:
        raise DataError(f"libsvm/{about.train.file}: {len(labels)} different labels, expected {about.classes}")
    if len(strange := np.setdiff1d(y_test, labels)):
        tested = (about.test or about.train).file
        raise DataError(f"libsvm/{tested}: a label is {strange[0]:g}, which {about.train.file} does not have")
    low, high = x.min(axis=0), x.max(axis=0)
    parts = [(to_range(part, low, high) if scale else part) for part in (x, x_test)]
    train, test = (
        Split(torch.from_numpy(part.astype(np.float32)), torch.from_numpy(np.searchsorted(labels, of)).long())
        for part, of in zip(parts, (y, y_test), strict=True)
    )
    return Data(set, train, test, classes=about.classes, class_names=tuple(f"{label:g}" for label in labels))


def read_part(name: str, part: LibsvmFile, check: bool = True) -> tuple[Floats, Floats]:
    """Read features and labels of a file of a set."""
    return _read(FILES[name].find(part.file), SETS[name], part, check)


def _read(path: Path, about: Set, part: LibsvmFile, check: bool = True) -> tuple[Floats, Floats]:
    x, y = read_svmlight(path, part.rows, about.features, limit=_size(about, part))
    require_digest(path, [canonical(x, y)], part.digest if check else None)
    return x, y


def canonical(x: Floats, y: Floats) -> bytes:
    """Write numbers so that spaces, notation and the order of the examples do not matter: those vary with the publisher.

    >>> x, y = np.array([[1.0], [0.0]]), np.array([2.0, 1.0])
    >>> canonical(x, y) == canonical(x[::-1], y[::-1])
    True
    """
    rows = np.column_stack([y, x]).astype("<f8") + 0.0  # no negative zeros
    return rows[np.lexsort(rows.T[::-1])].tobytes()


def _size(about: Set, part: LibsvmFile) -> int:
    """Return more bytes than the text of a file takes."""
    return part.rows * (about.features + 1) * 20


def _publish(name: str, about: Set) -> PublishedData:
    parts = [part for part in (about.train, about.test) if part is not None]
    rows = sum(part.rows for part in parts)
    train = VEHICLE_TRAIN if about.test is None else about.train.rows
    folder = "binary" if about.classes == 2 else "multiclass"
    address = f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/{folder}/"
    return publish(
        PublishedData(
            name,
            about=f"LIBSVM's {name}: {about.about}.",
            train=train,
            test=rows - train,
            classes=about.classes,
            licence="none stated; the LIBSVM page names the origin of each set",
            files=tuple(
                File(
                    part.file,
                    _size(about, part),
                    verify=functools.partial(_read, about=about, part=part),
                    exact=part.digest is not None,
                )
                for part in parts
            ),
            folders=("libsvm",),
            endings=(".xz", ".bz2", ""),
            sources=(DownloadSource("files", address, ending=about.ending),),
            family="libsvm",
        )
    )


FILES = {name: _publish(name, about) for name, about in SETS.items()}


def read_svmlight(path: Path, rows: int, columns: int, limit: int = 2**26) -> tuple[Floats, Floats]:
    """Read the features, a row per example, and the labels of a file with known numbers of rows and columns.

    The svmlight format has one line per example, `label index:value index:value …`, indices from 1; what is not named is 0.
    Read here and not by scikit-learn, which takes a second to import, and so that a file cannot claim more rows or columns
    than its data set has.

    The file may be packed with gzip, bzip2 or xz, to at most `limit` bytes of text.
    """
    lines = io.BytesIO(read_unpacked(path, limit))
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if len(numbered) != rows:
        raise DataError(f"{path}: {len(numbered)} examples, expected {rows}")
    x, y = np.zeros((rows, columns)), np.zeros(rows)
    for row, (number, line) in enumerate(numbered):
        parts = _LINE.fullmatch(line)
        if parts is None:
            start = line[:40].decode(errors="replace").rstrip("\n")
            raise DataError(f"{path}: line {number}: expected `label index:value …`, got {start!r}")
        pairs = parts[2].replace(b":", b" ").split()
        indices = np.array(pairs[::2], dtype=np.int64)
        if len(indices) and not (indices.min() >= 1 and indices.max() <= columns):
            wrong = next(int(index) for index in indices if not 1 <= index <= columns)
            raise DataError(f"{path}: line {number}: feature {wrong}, expected 1 to {columns}")
        y[row] = float(parts[1])
        x[row, indices - 1] = np.array(pairs[1::2], dtype=np.float64)
    huge = np.flatnonzero(~(np.isfinite(x).all(axis=1) & np.isfinite(y)))
    if len(huge):
        raise DataError(f"{path}: line {numbered[huge[0]][0]}: a number is too large")
    return x, y
