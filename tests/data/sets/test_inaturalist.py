"""iNaturalist-User-120k and -Geo: published splits in both forms, and made from the annotations."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedquilt.base.errors import DataError
from fedquilt.data.sets.inaturalist import COUNTS, balanced
from fedquilt.data.sets.published_splits import PublishedSplits
from fedquilt.datasets import inaturalist
from fedquilt.partition import geo

NOT_PUBLISHED = pytest.mark.filterwarnings("ignore:inaturalist .* differs from what was published:RuntimeWarning")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    (tmp_path / "inaturalist").mkdir()
    return tmp_path


def write_authors(home: Path, split: str = "user_120k") -> None:
    folder = home / ("inaturalist-user-120k" if split == "user_120k" else "inaturalist-geo")
    folder.mkdir()
    rows = "10,aa,1,417\n9,bb,0,33\n10,cc,0,33\n"
    (folder / f"federated_train_{split}.csv").write_text(f"user_id,image_id,class,label\n{rows}")
    (folder / "test.csv").write_text("image_id,class,label\ndd,1,417\n")


def write_variant(home: Path) -> None:
    rows = "aa,1,10,80c\nbb,0,9,NA\ncc,0,10,80c\nee,1,11,80d\n"
    (home / "inaturalist" / "iNaturalist_train.csv").write_text(f"image_id,class,user_120k,geo_1k\n{rows}")
    (home / "inaturalist" / "iNaturalist_test.csv").write_text("image_id,class\ndd,1\n")


@NOT_PUBLISHED
def test_the_authors_files(home: Path) -> None:
    write_authors(home)
    data = inaturalist(size=8)
    assert data.name == "inaturalist user_120k"
    assert data.train.x.tolist() == [0, 1, 2]
    assert data.test.x.tolist() == [3]
    assert data.train.y.tolist() == [1, 0, 0]
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [1, 0, 1]  # 9 comes before 10
    assert data.test.y.tolist() == [1]
    assert data.classes == 2


@NOT_PUBLISHED
def test_the_authors_files_by_place(home: Path) -> None:
    write_authors(home, "geo_3k")
    assert inaturalist(split="geo_3k").train.y.tolist() == [1, 0, 0]
    with pytest.raises(DataError, match=r"inaturalist-geo/federated_train_geo_1k\.csv is missing"):
        inaturalist(split="geo_1k")


@NOT_PUBLISHED
def test_tensorflow_federateds_variant(home: Path) -> None:
    write_variant(home)
    data = inaturalist(check=False)
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [1, 0, 1, 2]
    by_place = inaturalist(split="geo_1k", check=False)
    assert by_place.train.ids is not None
    assert by_place.train.y.tolist() == [1, 0, 1], "what belongs to nobody is left out"
    assert by_place.train.ids.tolist() == [0, 0, 1]
    with pytest.raises(DataError, match="has no column 'geo_30k'; its columns are image_id, class, user_120k, geo_1k"):
        inaturalist(split="geo_30k", check=False)


@NOT_PUBLISHED
def test_images_are_found_wherever_they_lie_and_are_missed_when_needed(home: Path) -> None:
    write_authors(home)
    data = inaturalist(size=8, scale="unit")  # no image is there
    assert data.prepare is not None
    with pytest.raises(
        DataError, match=r"aa\.jpg: there is no such image file\. The images are in train_val_images\.tar"
    ):
        data.prepare(data.train.x)
    coordinates = {
        "aa": "Aves/Corvus corax",
        "bb": "Plantae/Acer rubrum",
        "cc": "Plantae/Acer rubrum",
        "dd": "Aves/Pica pica",
    }
    for number, (image, folder) in enumerate(coordinates.items()):
        path = home / "inaturalist" / "train_val_images" / folder
        path.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (60 * number, 0, 0)).save(path / f"{image}.jpg")
    data = inaturalist(size=8, scale="unit")
    assert data.prepare is not None
    reds = data.prepare(torch.cat([data.train.x, data.test.x]))[:, 0].mean(dim=(1, 2)) * 255
    assert torch.allclose(reds, torch.tensor([0.0, 60, 120, 180]), atol=3)


def test_a_warning_says_how_the_files_differ_from_the_published_ones(home: Path) -> None:
    write_authors(home)
    with pytest.warns(RuntimeWarning) as told:
        inaturalist()
    assert str(told[0].message) == (
        "inaturalist user_120k differs from what was published: 2 classes instead of 1,203, 3 training images instead of "
        "120,300, 1 test images instead of 35,641, 2 clients instead of 9,275"
    )


def test_a_file_with_another_digest_is_refused(home: Path) -> None:
    write_variant(home)
    with pytest.raises(
        DataError, match=r"iNaturalist_train\.csv: .* MD5 \w{32}, expected 63d5a4\w+; .* with `check = false`"
    ):
        inaturalist()


def test_files_as_large_as_the_published_ones_pass_without_a_warning(home: Path) -> None:
    """Every class 100 times, 9,275 users, and 35,641 images to test on."""
    train, test = home / "federated_train.csv", home / "test.csv"
    rows = "".join(f"{i % 9275},{i},{i % 1203}\n" for i in range(120_300))
    train.write_text(f"user_id,image_id,class\n{rows}")
    test.write_text("image_id,class\n" + "".join(f"t{i},{i % 1203}\n" for i in range(35_641)))
    found = PublishedSplits.read(train, test, 1203, "user_id")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.warn_if_different("inaturalist", COUNTS["user_120k"])
    with pytest.warns(RuntimeWarning, match="9,275 clients instead of 11"):
        found.warn_if_different("inaturalist", COUNTS["geo_30k"])


def test_the_published_counts() -> None:
    """Hsu 2020, section 4.1 and figure 6: 11, 135, 368 and 3,606 cells."""
    assert str(COUNTS["user_120k"]).endswith(": 9,275 clients, 120,300 images to train, 35,641 to test, 1,203 classes")
    assert [COUNTS[f"geo_{most}"].clients for most in ("30k", "3k", "1k", "100")] == [11, 135, 368, 3606]


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (
            "user_id,image_id,class\n1,aa,1203\n",
            "image_id,class\ndd,1\n",
            r"federated_train.*a class is 1203; with 1203",
        ),
        (
            "user_id,image_id,class\n1,aa,1\n",
            "image_id,class\ndd,-1\n",
            r"test\.csv: column 'class' must hold integers.*-1",
        ),
        ("user_id,image_id,class\n1,aa,oak\n", "image_id,class\ndd,1\n", "integers from 0, got 'oak'"),
        ("user_id,image_id\n1,aa\n", "image_id,class\ndd,1\n", "has no column 'class'"),
        ("user_id,image_id,class\n", "image_id,class\ndd,1\n", "has no rows"),
        ("user_id,image_id,class\nNA,aa,1\n", "image_id,class\ndd,1\n", "no image has a client in column 'user_id'"),
    ],
)
def test_damaged_split_files(home: Path, train: str, test: str, message: str) -> None:
    folder = home / "inaturalist-user-120k"
    folder.mkdir()
    (folder / "federated_train_user_120k.csv").write_text(train)
    (folder / "test.csv").write_text(test)
    with pytest.raises(DataError, match=message):
        inaturalist()


def test_a_missing_test_split(home: Path) -> None:
    write_authors(home)
    (home / "inaturalist-user-120k" / "test.csv").unlink()
    with pytest.raises(DataError, match=r"the test split, test\.csv, must be in the same folder"):
        inaturalist()


# From the annotations.


def write_raw(home: Path, images: int = 400, seed: int = 0) -> dict[int, dict[str, Any]]:
    """Write annotations of five classes of very different sizes; return them by the image's id."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice([7, 11, 12, 30, 44], size=images, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    notes = {}
    for number, kind in enumerate(kinds.tolist()):
        lat, lon = rng.normal([45, 10], [3, 8]) if number % 2 else rng.normal([-30, 150], [1, 1])
        user = None if number % 17 == 0 else int(rng.zipf(1.5)) * 7
        place = {"lat": None, "lon": None} if number % 13 == 0 else {"lat": float(lat), "lon": float(lon)}
        notes[1000 + number] = {"kind": kind, "user_id": user, **place}
    train, tested = list(notes)[: images * 3 // 4], list(notes)[images * 3 // 4 :]
    for name, ids in (("train2017", train), ("val2017", tested)):
        content = {
            "images": [{"id": i, "file_name": f"train_val_images/Aves/{i}.jpg", "width": 8} for i in reversed(ids)],
            "categories": [{"id": kind, "name": str(kind)} for kind in (7, 11, 12, 30, 44)],
            "annotations": [{"id": i + 5, "image_id": i, "category_id": notes[i]["kind"]} for i in ids],
        }
        (home / "inaturalist" / f"{name}.json").write_text(json.dumps(content))
    coordinates = [{"id": i, **{key: notes[i][key] for key in ("lat", "lon", "user_id")}, "date": ""} for i in train]
    (home / "inaturalist" / "train2017_locations.json").write_text(json.dumps(coordinates))
    return notes


def names_of(data: Any) -> list[str]:
    files = data.prepare.keywords["images"].source
    return [files.path(number).name for number in data.train.x.tolist()]


def test_users_of_the_raw_annotations(home: Path) -> None:
    notes = write_raw(home)
    data = inaturalist(source="raw", examples=30)
    chosen = [notes[int(name.removesuffix(".jpg"))] for name in names_of(data)]
    owned = Counter(note["kind"] for i, note in notes.items() if i < 1300 and note["user_id"] is not None)
    kept = sorted(kind for kind, count in owned.items() if count >= 30)
    assert 2 <= len(kept) < 5, "some classes are too small"
    assert Counter(note["kind"] for note in chosen) == dict.fromkeys(kept, 30)
    assert data.train.y.tolist() == [kept.index(note["kind"]) for note in chosen]
    assert data.classes == len(kept)
    users = sorted({note["user_id"] for note in chosen})
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [users.index(note["user_id"]) for note in chosen]
    expected = [[note["lat"] or np.nan, note["lon"] or np.nan] for note in chosen]
    assert np.array_equal(data.train.coordinates, expected, equal_nan=True)  # type: ignore[arg-type]
    assert len(data.test) == sum(note["kind"] in kept for i, note in notes.items() if i >= 1300)


def test_the_seed_decides_which_images_are_drawn(home: Path) -> None:
    write_raw(home)
    first, same, other = (set(names_of(inaturalist(source="raw", examples=30, seed=seed))) for seed in (1, 1, 2))
    assert first == same != other


def test_cells_of_the_raw_annotations(home: Path) -> None:
    """The split by place is that of the partition `geo` on the split by user."""
    write_raw(home, images=2000)
    users = inaturalist(source="raw", examples=90)
    cells = inaturalist(source="raw", examples=90, split="geo_100")
    held = geo(users, most=100)
    expected = [names_of(users)[row] for row in np.sort(held.indices)]
    assert names_of(cells) == expected
    assert cells.train.ids is not None
    for cell in range(len(held)):
        found = {name for name, owner in zip(names_of(cells), cells.train.ids.tolist(), strict=True) if owner == cell}
        assert found == {names_of(users)[row] for row in held.client(cell)}
    assert len(held) > 2
    assert held.sizes.max() <= 100
    assert (cells.classes, len(cells.test)) == (users.classes, len(users.test))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 12), st.integers(0, 99))
def test_balanced_takes_as_many_of_every_class_that_has_them(labels: list[int], examples: int, seed: int) -> None:
    rows = balanced(np.array(labels, dtype=np.int64), examples, seed)
    assert rows.tolist() == sorted(set(rows.tolist()))
    counts = Counter(labels)
    expected = {kind: examples for kind, count in counts.items() if count >= examples}
    assert Counter(labels[row] for row in rows) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train2017.json", "{", r"train2017\.json: is not JSON"),
        ("train2017.json", "[]", r"train2017\.json: is not a file of iNaturalist 2017: TypeError"),
        ("train2017.json", '{"images": []}', "is not a file of iNaturalist 2017: KeyError: 'annotations'"),
        ("val2017.json", '{"images": [], "annotations": []}', r"val2017\.json has no image of the classes"),
        ("train2017_locations.json", '[{"id": 1}]', "no class of train2017.json has 30 images with a user"),
        (
            "train2017_locations.json",
            '[{"id": 1001, "lat": 99, "lon": 0, "user_id": 3}]',
            "not between −90 and 90 degrees",
        ),
        ("train2017_locations.json", '[{"id": 1001, "lat": "x", "lon": 0, "user_id": 3}]', "ValueError"),
    ],
)
def test_damaged_annotations(home: Path, name: str, content: str, message: str) -> None:
    write_raw(home)
    (home / "inaturalist" / name).write_text(content)
    with pytest.raises(DataError, match=message):
        inaturalist(source="raw", examples=30)


def test_missing_annotations(home: Path) -> None:
    with pytest.raises(DataError, match=r"inaturalist/train2017\.json is missing.*train_val2017\.zip"):
        inaturalist(source="raw")
