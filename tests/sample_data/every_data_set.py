"""Every registered data set, in small files of its published format."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import fedquilt
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data
from fedquilt.data.sets.libsvm import SETS
from sample_data.arrays import cifar_records, unchecked, write_hdf5, write_idx
from sample_data.images import photo, write_images
from sample_data.texts import PLAYS, several_posts, write_leaf, write_posts, write_svmlight

IMAGE: dict[str, Any] = {"size": 8, "scale": "symmetric"}


Load = Callable[[], Data]
Write = Callable[[Path, pytest.MonkeyPatch], Load]


@dataclass(frozen=True)
class Case:
    """A data set in small files, and what it has that partitions may ask for.

    `write` puts the files into a folder and returns what loads them; what it patches are digests and counts that small
    files cannot have.
    """

    write: Write
    clients: bool = False
    coordinates: bool = False
    sequences: bool = False
    numbers: bool = False


def idx(name: str) -> Write:
    def write(home: Path, patch: pytest.MonkeyPatch) -> Load:
        module = import_module(f"fedquilt.data.sets.{name}")
        patch.setattr(module, "FILES", unchecked(module.FILES))
        for part, count in (("train", 24), ("t10k", 12)):
            images = np.random.default_rng(0).integers(0, 256, (count, 28, 28))
            write_idx(home / module.FILES.folders[0], images, np.arange(count) % 4, part)
        return cast(Load, datasets[name])

    return write


def cifar(name: str, labels: int) -> Write:
    def write(home: Path, patch: pytest.MonkeyPatch) -> Load:
        module = import_module(f"fedquilt.data.sets.{name}")
        patch.setattr(module, "FILES", unchecked(module.FILES))
        folder = home / module.FILES.folders[0]
        folder.mkdir(parents=True)
        for seed, file in enumerate(module.FILES.files):
            records = cifar_records((np.arange(12)[:, None] % 4).repeat(labels, axis=1), seed)
            (folder / file.name).write_bytes(records.tobytes())
        return cast(Load, datasets[name])

    return write


def femnist(home: Path, patch: pytest.MonkeyPatch) -> Load:
    for part, size in (("train", 8), ("test", 4)):
        pixels = np.random.default_rng(size).random((size, 28, 28), dtype=np.float32)
        columns = {"pixels": pixels, "label": np.arange(size) % 4}
        write_hdf5(home / "femnist" / f"fed_emnist_{part}.h5", {f"f{writer}": columns for writer in range(4)})
    return fedquilt.femnist


def stack_overflow(home: Path, patch: pytest.MonkeyPatch) -> Load:
    folder = home / "stackoverflow"
    folder.mkdir()
    (folder / "stackoverflow.word_count").write_text("the 9\nto 8\na 7\nclass 1\n")
    for part, size in (("train", 5), ("test", 2)):
        sentences = {"tokens": ["the class", "to the zebra class a", "a", "to a", "class"][:size]}
        write_hdf5(folder / f"stackoverflow_{part}.h5", {str(author): sentences for author in range(4)})
    return lambda: fedquilt.stack_overflow(vocabulary=4, unroll=4)


def shakespeare(home: Path, patch: pytest.MonkeyPatch) -> Load:
    patch.setattr(import_module("fedquilt.data.sets.shakespeare"), "DIGEST", None)
    (home / "t8.shakespeare.txt.xz").write_bytes(lzma.compress(PLAYS.encode()))
    return lambda: fedquilt.shakespeare(unroll=20, least_lines=2)


def libsvm(home: Path, patch: pytest.MonkeyPatch) -> Load:
    about = SETS["satimage"]
    assert about.test is not None
    train, test = replace(about.train, rows=24, digest=None), replace(about.test, rows=12, digest=None)
    patch.setitem(SETS, "satimage", replace(about, train=train, test=test))
    for part in (train, test):
        write_svmlight(home / "libsvm" / part.file, part.rows, labels=(1, 2, 3, 4, 5, 7))
    return lambda: fedquilt.libsvm("satimage")


def own_table(home: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{rng.normal()},{rng.normal()},{row % 4},{row % 5},{rng.uniform(-60, 60)},{rng.uniform(-170, 170)}"
        for row in range(40)
    ]
    (home / "own.csv").write_text("\n".join(["a,b,kind,who,lat,lon", *rows]) + "\n")
    return home / "own.csv"


def table(home: Path, patch: pytest.MonkeyPatch) -> Load:
    path = own_table(home)
    return lambda: fedquilt.table(path, label="kind", client="who", latitude="lat", longitude="lon")


def numbers(home: Path, patch: pytest.MonkeyPatch) -> Load:
    path = own_table(home)
    return lambda: fedquilt.table(path, label="a", client="who", latitude="lat", longitude="lon", classes=0)


def hugging_face(home: Path, patch: pytest.MonkeyPatch) -> Load:
    library = pytest.importorskip("datasets", reason="needs the extra hugging_face")
    library.disable_progress_bars()
    library.Dataset.from_csv(str(own_table(home)), cache_dir=str(home / "cache")).save_to_disk(home / "saved")
    return lambda: fedquilt.hugging_face(str(home / "saved"), label="kind", client="who")


def hugging_face_images(home: Path, patch: pytest.MonkeyPatch) -> Load:
    library = pytest.importorskip("datasets", reason="needs the extra hugging_face")
    library.disable_progress_bars()
    for number in range(24):
        photo(home / f"{number}.png", number)
    values = {
        "image": [str(home / f"{number}.png") for number in range(24)],
        "label": [number % 3 for number in range(24)],
        "who": [number % 4 for number in range(24)],
    }
    library.Dataset.from_dict(values).cast_column("image", library.Image()).save_to_disk(home / "saved")
    return lambda: fedquilt.hugging_face(str(home / "saved"), client="who", **IMAGE)


def leaf(home: Path, patch: pytest.MonkeyPatch) -> Load:
    users = {f"user {k}": (np.eye(8)[:, :3].tolist(), (np.arange(8) % 4).tolist()) for k in range(4)}
    write_leaf(home / "leaf" / "all_data" / "all.json", users)
    return lambda: fedquilt.leaf(home / "leaf", test_fraction=0.25)


def posts(home: Path, patch: pytest.MonkeyPatch) -> Load:
    path = write_posts(home / "posts.jsonl", several_posts(6))
    return lambda: fedquilt.posts(path, vocabulary=20)


def images(load: Callable[[Path], Data]) -> Write:
    def written(home: Path, patch: pytest.MonkeyPatch) -> Load:
        write_images(home)
        return lambda: load(home)

    return written


CASES: dict[str, Case] = {
    "cifar10": Case(cifar("cifar10", labels=1)),
    "cifar100": Case(cifar("cifar100", labels=2)),
    "digits": Case(lambda home, patch: fedquilt.digits),
    "fashion_mnist": Case(idx("fashion_mnist")),
    "femnist": Case(femnist, clients=True),
    "hugging_face": Case(hugging_face, clients=True),
    "hugging_face of images": Case(hugging_face_images, clients=True),
    "image_folder": Case(
        images(lambda home: fedquilt.image_folder(home / "own", home / "own.csv", **IMAGE)),
        clients=True,
        coordinates=True,
    ),
    "inaturalist": Case(images(lambda home: fedquilt.inaturalist(check=False, **IMAGE)), clients=True),
    "inaturalist by place": Case(
        images(lambda home: fedquilt.inaturalist("geo_100", check=False, **IMAGE)), clients=True
    ),
    "inaturalist from annotations": Case(
        images(lambda home: fedquilt.inaturalist(source="raw", examples=12, **IMAGE)), clients=True, coordinates=True
    ),
    "landmarks": Case(images(lambda home: fedquilt.landmarks(**IMAGE)), clients=True),
    "landmarks from tables": Case(images(lambda home: fedquilt.landmarks(source="raw", **IMAGE)), clients=True),
    "leaf": Case(leaf, clients=True),
    "libsvm": Case(libsvm),
    "mnist": Case(idx("mnist")),
    "mnist_5k": Case(lambda home, patch: fedquilt.mnist_5k),
    "posts": Case(
        posts,
        clients=True,
        sequences=True,
    ),
    "shakespeare": Case(shakespeare, clients=True, sequences=True),
    "stack_overflow": Case(stack_overflow, clients=True, sequences=True),
    "synthetic": Case(
        lambda home, patch: lambda: fedquilt.synthetic(clients=4, minimum=10, features=5, classes=4), clients=True
    ),
    "table": Case(table, clients=True, coordinates=True),
    "table of numbers": Case(numbers, clients=True, coordinates=True, numbers=True),
}
"""By the name of the data set, with a word on which of several there are."""
