"""Every data set with every partition in a round of training, in worker processes, or a clear message why not.

The data sets are read from small files in their published formats. A data set or partition that is registered and not
entered here fails the first test.
"""

from __future__ import annotations

import lzma
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from formats.arrays import cifar_records, unchecked, write_hdf5, write_idx
from formats.images import write_images
from formats.texts import PLAYS, several_posts, write_leaf, write_posts, write_svmlight
from torch import nn

import fedquilt
from fedquilt.data.data import Data
from fedquilt.data.libsvm import SETS
from fedquilt.errors import FedquiltError
from fedquilt.models import word_lstm
from fedquilt.partition.partition import Partition
from fedquilt.registry import datasets, partitions

pytestmark = pytest.mark.filterwarnings("ignore:.* is not as published:RuntimeWarning")

CLIENTS = 3
IMAGE = {"size": 8, "scale": "symmetric"}


@dataclass(frozen=True)
class Case:
    """A data set from small files in a folder, and what it has that partitions may ask for."""

    load: Callable[[Path, pytest.MonkeyPatch], Data]
    clients: bool = False
    places: bool = False
    sequences: bool = False
    numbers: bool = False


def idx(name: str) -> Callable[[Path, pytest.MonkeyPatch], Data]:
    def load(home: Path, patch: pytest.MonkeyPatch) -> Data:
        module = sys.modules[f"fedquilt.data.{name}"]
        patch.setattr(module, "FILES", unchecked(module.FILES))
        for part, count in (("train", 24), ("t10k", 12)):
            images = np.random.default_rng(0).integers(0, 256, (count, 28, 28))
            write_idx(home / module.FILES.folders[0], images, np.arange(count) % 4, part)
        return datasets[name]()

    return load


def cifar(name: str, labels: int) -> Callable[[Path, pytest.MonkeyPatch], Data]:
    def load(home: Path, patch: pytest.MonkeyPatch) -> Data:
        module = sys.modules[f"fedquilt.data.{name}"]
        patch.setattr(module, "FILES", unchecked(module.FILES))
        folder = home / module.FILES.folders[0]
        folder.mkdir(parents=True)
        for seed, file in enumerate(module.FILES.files):
            records = cifar_records((np.arange(12)[:, None] % 4).repeat(labels, axis=1), seed)
            (folder / file.name).write_bytes(records.tobytes())
        return datasets[name]()

    return load


def femnist(home: Path, patch: pytest.MonkeyPatch) -> Data:
    for part, size in (("train", 8), ("test", 4)):
        pixels = np.random.default_rng(size).random((size, 28, 28), dtype=np.float32)
        columns = {"pixels": pixels, "label": np.arange(size) % 4}
        write_hdf5(home / "femnist" / f"fed_emnist_{part}.h5", {f"f{writer}": columns for writer in range(4)})
    return fedquilt.femnist()


def stack_overflow(home: Path, patch: pytest.MonkeyPatch) -> Data:
    folder = home / "stackoverflow"
    folder.mkdir()
    (folder / "stackoverflow.word_count").write_text("the 9\nto 8\na 7\nclass 1\n")
    for part, size in (("train", 5), ("test", 2)):
        sentences = {"tokens": ["the class", "to the zebra class a", "a", "to a", "class"][:size]}
        write_hdf5(folder / f"stackoverflow_{part}.h5", {str(author): sentences for author in range(4)})
    return fedquilt.stack_overflow(vocabulary=4, unroll=4)


def shakespeare(home: Path, patch: pytest.MonkeyPatch) -> Data:
    patch.setattr(sys.modules["fedquilt.data.shakespeare"], "DIGEST", None)
    (home / "t8.shakespeare.txt.xz").write_bytes(lzma.compress(PLAYS.encode()))
    return fedquilt.shakespeare(unroll=20, least_lines=2)


def libsvm(home: Path, patch: pytest.MonkeyPatch) -> Data:
    about = SETS["satimage"]
    assert about.test is not None
    parts = {"train": replace(about.train, rows=24, digest=None), "test": replace(about.test, rows=12, digest=None)}
    patch.setitem(SETS, "satimage", replace(about, **parts))
    for part in parts.values():
        write_svmlight(home / "libsvm" / part.file, part.rows, labels=(1, 2, 3, 4, 5, 7))
    return fedquilt.libsvm("satimage")


def own_table(home: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{rng.normal()},{rng.normal()},{row % 4},{row % 5},{rng.uniform(-60, 60)},{rng.uniform(-170, 170)}"
        for row in range(40)
    ]
    (home / "own.csv").write_text("\n".join(["a,b,kind,who,lat,lon", *rows]) + "\n")
    return home / "own.csv"


def table(home: Path, patch: pytest.MonkeyPatch) -> Data:
    return fedquilt.table(own_table(home), label="kind", client="who", latitude="lat", longitude="lon")


def numbers(home: Path, patch: pytest.MonkeyPatch) -> Data:
    return fedquilt.table(own_table(home), label="a", client="who", latitude="lat", longitude="lon", classes=0)


def hugging_face(home: Path, patch: pytest.MonkeyPatch) -> Data:
    library = pytest.importorskip("datasets", reason="needs the extra hugging_face")
    library.disable_progress_bars()
    library.Dataset.from_csv(str(own_table(home)), cache_dir=str(home / "cache")).save_to_disk(home / "saved")
    return fedquilt.hugging_face(str(home / "saved"), label="kind", client="who")


def leaf(home: Path, patch: pytest.MonkeyPatch) -> Data:
    users = {f"user {k}": (np.eye(8)[:, :3].tolist(), (np.arange(8) % 4).tolist()) for k in range(4)}
    write_leaf(home / "leaf" / "all_data" / "all.json", users)
    return fedquilt.leaf(home / "leaf", test_fraction=0.25)


def images(load: Callable[[Path], Data]) -> Callable[[Path, pytest.MonkeyPatch], Data]:
    def written(home: Path, patch: pytest.MonkeyPatch) -> Data:
        write_images(home)
        return load(home)

    return written


CASES: dict[str, Case] = {
    "cifar10": Case(cifar("cifar10", labels=1)),
    "cifar100": Case(cifar("cifar100", labels=2)),
    "digits": Case(lambda home, patch: fedquilt.digits()),
    "fashion_mnist": Case(idx("fashion_mnist")),
    "femnist": Case(femnist, clients=True),
    "hugging_face": Case(hugging_face, clients=True),
    "image_folder": Case(
        images(lambda home: fedquilt.image_folder(home / "own", home / "own.csv", **IMAGE)), clients=True, places=True
    ),
    "inaturalist": Case(images(lambda home: fedquilt.inaturalist(**IMAGE)), clients=True),
    "inaturalist by place": Case(images(lambda home: fedquilt.inaturalist("geo_100", **IMAGE)), clients=True),
    "inaturalist from annotations": Case(
        images(lambda home: fedquilt.inaturalist(source="raw", examples=12, **IMAGE)), clients=True, places=True
    ),
    "landmarks": Case(images(lambda home: fedquilt.landmarks(**IMAGE)), clients=True),
    "landmarks from tables": Case(images(lambda home: fedquilt.landmarks(source="raw", **IMAGE)), clients=True),
    "leaf": Case(leaf, clients=True),
    "libsvm": Case(libsvm),
    "mnist": Case(idx("mnist")),
    "mnist_5k": Case(lambda home, patch: fedquilt.mnist_5k()),
    "posts": Case(
        lambda home, patch: fedquilt.posts(write_posts(home / "posts.jsonl", several_posts(6)), vocabulary=20),
        clients=True,
        sequences=True,
    ),
    "shakespeare": Case(shakespeare, clients=True, sequences=True),
    "stack_overflow": Case(stack_overflow, clients=True, sequences=True),
    "synthetic": Case(
        lambda home, patch: fedquilt.synthetic(clients=4, minimum=10, features=5, classes=4), clients=True
    ),
    "table": Case(table, clients=True, places=True),
    "table of numbers": Case(numbers, clients=True, places=True, numbers=True),
}
"""By the name of the data set, with a word on which of several there are."""

BY_CLASS = {"class_blocks", "dirichlet", "dirichlet_per_class", "shards", "stratified"}
BY_SIZE = {"iid", "power_law", "quantity_skew", "stored"}


def refusal(case: Case, partition: str) -> str | None:
    """Return what is said of a pair that makes no sense."""
    if partition == "geo" and not case.places:
        return "needs to know where examples come from, but the data set .* has no places"
    if partition == "natural" and not case.clients:
        return "the data set .* does not say whose its examples are; take another partition"
    if partition in BY_CLASS and case.sequences:
        return "needs one class an example, but the labels of this data set have the shape"
    if partition in BY_CLASS and case.numbers:
        return "needs one class an example, but the targets of this data set are numbers"
    if partition == "feature_skew" and case.sequences:
        return "noise can be added to numbers with a fraction only"
    return None


def tiny(data: Data) -> nn.Module:
    torch.manual_seed(0)
    if data.train.y.dim() == 2:
        return word_lstm(vocabulary=data.classes, embedding=4, hidden=4)
    x = data.train.x[:2] if data.prepare is None else data.prepare(data.train.x[:2])
    return nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), data.classes or 1))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Data]:
    """Load each data set once."""
    known: dict[str, Data] = {}

    def load(name: str) -> Data:
        if name not in known:
            home = tmp_path_factory.mktemp("home")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("FEDQUILT_DATA", str(home))
                known[name] = CASES[name].load(home, patch)
        return known[name]

    return load


def test_every_data_set_and_partition_is_entered_here() -> None:
    assert {name.split()[0] for name in CASES} == set(datasets)
    assert BY_CLASS | BY_SIZE | {"feature_skew", "geo", "natural"} == set(partitions)


@pytest.mark.parametrize("name", CASES)
def test_a_data_set_has_what_is_said_of_it(name: str, loaded: Callable[[str], Data]) -> None:
    data, case = loaded(name), CASES[name]
    assert (data.train.ids is not None) == case.clients
    assert (data.train.places is not None) == case.places
    assert (data.train.y.dim() == 2) == case.sequences
    assert data.train.y.is_floating_point() == (data.classes == 0) == case.numbers


@pytest.mark.parametrize("partition", list(partitions))
@pytest.mark.parametrize("name", CASES)
def test_a_round(
    name: str, partition: str, loaded: Callable[[str], Data], make_partition: Callable[..., Partition]
) -> None:
    data, message = loaded(name), refusal(CASES[name], partition)
    arguments = {"geo": {"most": 9}, "class_blocks": {"classes": 4}}.get(partition, {})

    def trained() -> None:
        held = make_partition(partition, data, CLIENTS, **arguments)
        assert len(held) > 1
        method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=64)
        engine, loss = fedquilt.processes(workers=2), "cross_entropy" if data.classes else "mean_squared_error"
        result = fedquilt.train(tiny(data), data, held, method, rounds=1, engine=engine, loss=loss)
        (record,) = result.history
        assert record["applied"]
        assert record["dropped"] == []
        assert sorted(record["clients"]) == list(range(len(held)))
        assert record["examples"] == len(held.indices)
        assert np.isfinite(record["loss"])
        assert (record.get("own_accuracy") is not None) == (held.test is not None and data.classes > 0)

    if message is None:
        trained()
    else:
        with pytest.raises(FedquiltError, match=message):
            trained()
