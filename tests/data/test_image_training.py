"""Every set of images, with every partition, in training: the same bits however its images are made ready."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fedquilt
from fedquilt.data.data import Data
from fedquilt.partition.partition import Partition

pytestmark = pytest.mark.filterwarnings("ignore:.* is not as published:RuntimeWarning")

OPTIONS = {"size": 16, "scale": "symmetric"}
METHOD = fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=4)


def model(classes: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 5, stride=3),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, classes),
    )


def photo(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (6, 5 + number % 4, 3)).astype(np.uint8).repeat(5, axis=0).repeat(5, axis=1)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small files of every set of images."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    rows = ["path,label,client,latitude,longitude"]
    for number in range(48):
        ending = "jpg" if number % 2 else "png"
        photo(home / "own" / f"{number}.{ending}", number)
        lat, lon = rng.normal([40, 10] if number % 3 else [-30, 100], 5)
        rows.append(f"{number}.{ending},{'elm' if number % 3 else 'oak'},{number % 5},{lat},{lon}")
    (home / "own.csv").write_text("\n".join(rows) + "\n")
    _write_inaturalist(home, rng)
    _write_landmarks(home)
    _write_hugging_face(home)
    return home


def _write_inaturalist(home: Path, rng: np.random.Generator) -> None:
    folder = home / "inaturalist"
    names = [f"{number:04x}" for number in range(60)]
    for number, name in enumerate(names):
        photo(folder / "train_val_images" / f"kind {number % 3}" / f"{name}.jpg", number)
    rows = [f"{n},{i % 3},u{i % 7},{'NA' if i % 9 == 0 else i % 2}" for i, n in enumerate(names[:48])]
    (folder / "iNaturalist_train.csv").write_text("\n".join(["image_id,class,user_120k,geo_100", *rows]) + "\n")
    rows = [f"{name},{number % 3}" for number, name in enumerate(names[48:])]
    (folder / "iNaturalist_test.csv").write_text("\n".join(["image_id,class", *rows]) + "\n")
    for split, ids in (("train2017", range(48)), ("val2017", range(48, 60))):
        content = {
            "images": [{"id": i, "file_name": f"train_val_images/kind {i % 3}/{names[i]}.jpg"} for i in ids],
            "annotations": [{"id": i, "image_id": i, "category_id": 10 * (i % 3)} for i in ids],
        }
        (folder / f"{split}.json").write_text(json.dumps(content))
    places = rng.normal([40, 10], 8, size=(48, 2)).tolist()
    content = [{"id": i, "lat": lat, "lon": lon, "user_id": i % 7} for i, (lat, lon) in enumerate(places)]
    (folder / "train2017_locations.json").write_text(json.dumps(content))


def _write_landmarks(home: Path) -> None:
    """Ten users with six images of each of five landmarks, and one more with an image of each."""
    folder, rows = home / "landmarks", []
    for number in range(10 * 5 * 6 + 5):
        rows.append((f"{number:03x}0", number % 5, min(number // 30, 10)))
        photo(folder / "train" / "/".join(rows[-1][0][:3]) / f"{rows[-1][0]}.jpg", number)
    shown = [f"{mark}," + " ".join(image for image, of, _ in rows if of == mark) for mark in range(5)]
    (folder / "train_clean.csv").write_text("\n".join(["landmark_id,images", *shown]) + "\n")
    authors = [f"{image},u,user {user},CC,t" for image, _, user in rows]
    (folder / "train_attribution.csv").write_text("\n".join(["id,url,author,license,title", *authors]) + "\n")
    (home / "landmarks-user-160k").mkdir()
    lines = [f"user {user},{image},{mark}" for image, mark, user in rows[:40:2]]
    (home / "landmarks-user-160k" / "federated_train.csv").write_text(
        "\n".join(["user_id,image_id,class", *lines]) + "\n"
    )
    lines = [f"{image},{mark}" for image, mark, _ in rows[-5:]]
    (home / "landmarks-user-160k" / "test.csv").write_text("\n".join(["image_id,class", *lines]) + "\n")


def _write_hugging_face(home: Path) -> None:
    library = pytest.importorskip("datasets", reason="needs the extra hugging_face")
    library.disable_progress_bars()
    values = {
        "image": [str(home / "own" / f"{number}.{'jpg' if number % 2 else 'png'}") for number in range(48)],
        "label": [number % 3 for number in range(48)],
        "who": [number % 5 for number in range(48)],
    }
    library.Dataset.from_dict(values).cast_column("image", library.Image()).save_to_disk(home / "saved")


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(home))


def own(home: Path, **options: object) -> Data:
    return fedquilt.image_folder(home / "own", home / "own.csv", **OPTIONS, **options)


SETS: dict[str, Callable[[Path], Data]] = {
    "image_folder": own,
    "hugging_face": lambda home: fedquilt.hugging_face("saved", client="who", **OPTIONS),
    "inaturalist by user": lambda home: fedquilt.inaturalist(check=False, **OPTIONS),
    "inaturalist by place": lambda home: fedquilt.inaturalist(split="geo_100", check=False, **OPTIONS),
    "raw inaturalist by user": lambda home: fedquilt.inaturalist(source="raw", examples=12, **OPTIONS),
    "raw inaturalist by place": lambda home: fedquilt.inaturalist("geo_100", "raw", examples=12, **OPTIONS),
    "landmarks": lambda home: fedquilt.landmarks(**OPTIONS),
    "raw landmarks": lambda home: fedquilt.landmarks(source="raw", **OPTIONS),
}


PARTITIONS: dict[str, Callable[[Data], Partition]] = {
    "natural": fedquilt.natural,
    "iid": lambda data: fedquilt.iid(data.train.y, clients=4),
    "shards": lambda data: fedquilt.shards(data.train.y, clients=4),
    "dirichlet": lambda data: fedquilt.dirichlet(data.train.y, clients=4, alpha=1.0),
    "geo": lambda data: fedquilt.geo(data, most=9),
}


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("name", SETS)
def test_a_round_with_every_set_and_partition(home: Path, name: str, partition: str) -> None:
    data = SETS[name](home)
    if partition == "geo" and data.train.places is None:
        with pytest.raises(fedquilt.FedquiltError, match="has no places"):
            PARTITIONS[partition](data)
        return
    held = PARTITIONS[partition](data)
    assert len(held) > 1
    result = fedquilt.train(model(data.classes), data, held, METHOD, rounds=1, engine=fedquilt.processes(workers=2))
    assert result.history.records[0]["applied"]
    assert result.history.records[0]["dropped"] == []


def test_the_bits_do_not_depend_on_how_images_are_made_ready(home: Path, tmp_path: Path) -> None:
    def digest(workers: int = 0, **options: object) -> str:
        data = own(home, **options)
        engine = fedquilt.processes(workers=workers) if workers else fedquilt.inline()
        return fedquilt.train(model(2), data, fedquilt.natural(data), METHOD, rounds=2, seed=5, engine=engine).digest

    expected = digest(ahead=0)
    assert digest(ahead=3) == expected
    assert digest(ahead=1, cache=tmp_path / "cache") == expected
    assert digest(workers=1) == digest(workers=2) == expected
    assert digest(workers=2, ahead=0, cache=tmp_path / "cache") == expected
    assert digest(workers=2, cache=tmp_path / "another") == expected, "two workers fill it at once"
    assert digest(ahead=0, augment=False) != expected


@pytest.mark.parametrize("augment", [True, False])
def test_blocks_of_clients_have_their_own_bits_however_images_are_made_ready(home: Path, augment: bool) -> None:
    def digest(workers: int, ahead: int) -> str:
        data = own(home, augment=augment, ahead=ahead)
        engine = fedquilt.vectorised(block=2, workers=workers)
        return fedquilt.train(model(2), data, fedquilt.natural(data), METHOD, rounds=2, seed=5, engine=engine).digest

    assert digest(workers=1, ahead=0) == digest(workers=2, ahead=2)


def test_a_run_that_is_resumed_gives_the_same_model(home: Path, tmp_path: Path) -> None:
    def trained(rounds: int, out: Path | None, folder: Path = home, **options: object) -> str:
        data, engine = own(folder, **options), fedquilt.processes(workers=2)
        return fedquilt.train(
            model(2), data, fedquilt.natural(data), METHOD, rounds=rounds, seed=5, engine=engine, out=out
        ).digest

    trained(2, tmp_path / "run")
    shutil.copytree(home, tmp_path / "moved")
    moved = trained(4, tmp_path / "run", tmp_path / "moved", ahead=0, cache=tmp_path / "cache")
    assert moved == trained(4, None)


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_damaged_image_is_the_fault_of_its_client(home: Path, tmp_path: Path, ahead: int) -> None:
    rows = (home / "own.csv").read_text().splitlines()
    for row in rows[1:]:
        name = row.split(",", 1)[0]
        content = (home / "own" / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2] if name == "7.jpg" else content)
    (tmp_path / "test.csv").write_text("\n".join([rows[0], *rows[3:6]]) + "\n")
    data = fedquilt.image_folder(tmp_path, home / "own.csv", test=tmp_path / "test.csv", ahead=ahead, **OPTIONS)
    method = fedquilt.fed_avg(fraction=1.0, batch=4)
    result = fedquilt.train(
        model(2), data, fedquilt.natural(data), method, rounds=1, engine=fedquilt.processes(workers=2)
    )
    (dropped,) = result.history.records[0]["dropped"]
    assert dropped["client"] == 7 % 5
    assert "7.jpg: the image cannot be read" in dropped["reason"]
    tested = fedquilt.image_folder(tmp_path, home / "own.csv", test=home / "own.csv", ahead=ahead, **OPTIONS)
    with pytest.raises(fedquilt.FedquiltError, match=r"7\.jpg: the image cannot be read"):
        fedquilt.train(
            model(2), tested, fedquilt.natural(tested), method, rounds=1, engine=fedquilt.processes(workers=2)
        )
