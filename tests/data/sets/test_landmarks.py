"""Landmarks-User-160k: published splits, and made from the tables of Google Landmarks v2."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tomli_w
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import fedquilt
from fedquilt.base.errors import DataError, SpecError
from fedquilt.data.sets.landmarks import COUNTS, fixed_point, rows_to_test
from fedquilt.datasets import landmarks

NOT_PUBLISHED = pytest.mark.filterwarnings("ignore:landmarks .* differs from what was published:RuntimeWarning")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    return tmp_path


def write_split(home: Path, split: str = "160k") -> None:
    folder = home / ("landmarks-user-160k" if split == "160k" else "landmarks")
    train, test = (
        ("federated_train.csv", "test.csv") if split == "160k" else ("mini_gld_train_split.csv", "mini_gld_test.csv")
    )
    folder.mkdir(exist_ok=True)
    (folder / train).write_text("user_id,image_id,class\nzoe,abcd,1\nann,0123,0\nzoe,a0b1,0\n")
    (folder / test).write_text("image_id,class\nffff,1\n")


@NOT_PUBLISHED
@pytest.mark.parametrize("split", ["160k", "23k"])
def test_published_splits(home: Path, split: Literal["160k", "23k"]) -> None:
    write_split(home, split)
    data = landmarks(split=split, size=8, check=False)
    assert data.train.y.tolist() == [1, 0, 0]
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [1, 0, 1]
    assert (len(data.test), data.classes) == (1, 2)


def test_a_warning_says_how_the_files_differ(home: Path) -> None:
    write_split(home, "23k")
    with pytest.warns(RuntimeWarning) as told:
        landmarks(split="23k", check=False)
    assert str(told[0].message) == (
        "landmarks 23k differs from what was published: 2 classes instead of 203, 3 training images instead of 23,080, "
        "2 clients instead of 233"
    )
    with pytest.raises(
        DataError, match=r"mini_gld_train_split\.csv: .* MD5 \w{32}, expected 9fd62c\w+; .* `check = fal"
    ):
        landmarks(split="23k")


def test_the_published_counts() -> None:
    assert str(COUNTS["160k"]) == (
        "published (Hsu 2020): 1,262 clients, 164,172 images to train, 19,526 to test, 2,028 classes"
    )


@NOT_PUBLISHED
@pytest.mark.parametrize("together", [False, True])
def test_images_in_folders_by_their_first_letters_or_together(home: Path, together: bool) -> None:
    write_split(home)
    (home / "landmarks").mkdir()
    if together:
        (home / "landmarks" / "images").mkdir()
    data = landmarks(size=8, scale="unit")
    assert data.prepare is not None
    with pytest.raises(
        DataError, match=r"abcd\.jpg: there is no such image file\. The images are those of Google Landmarks"
    ):
        data.prepare(data.train.x)
    for number, image in enumerate(["abcd", "0123", "a0b1", "ffff"]):
        folder = home / "landmarks" / ("images" if together else f"train/{image[0]}/{image[1]}/{image[2]}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (60 * number, 0, 0)).save(folder / f"{image}.jpg")
    reds = data.prepare(torch.arange(4))[:, 0].mean(dim=(1, 2)) * 255
    assert torch.allclose(reds, torch.tensor([0.0, 60, 120, 180]), atol=3)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("user_id,image_id,class\nann,ab,2028\n", r"federated_train\.csv: a class is 2028; with 2028 classes"),
        ("user_id,image_id\nann,ab\n", r"federated_train\.csv: has no column 'class'"),
        ("user_id,image_id,class\n", r"federated_train\.csv: has no rows"),
        ("user_id,image_id,class\nann,ab\n", r"federated_train\.csv: line 2 has 2 values, the first line 3"),
    ],
)
def test_damaged_split_files(home: Path, train: str, message: str) -> None:
    write_split(home)
    (home / "landmarks-user-160k" / "federated_train.csv").write_text(train)
    with pytest.raises(DataError, match=message):
        landmarks()


def test_missing(home: Path) -> None:
    with pytest.raises(
        DataError, match=r"landmarks-user-160k/federated_train\.csv is missing.*landmarks-user-160k\.zip"
    ):
        landmarks()
    with pytest.raises(DataError, match=r"landmarks/train_clean\.csv is missing"):
        landmarks(source="raw")
    with pytest.raises(SpecError, match="only 160k is made from raw tables"):
        landmarks(split="23k", source="raw")


# The filters.

Table = list[tuple[int, int]]


def by_hand(rows: Table, images: int, users: int, user_images: int, user_landmarks: int, last_first: bool) -> set[int]:
    """Throw out one landmark or user that has too little, again and again, until nobody has."""
    left = {row for row, (_, author) in enumerate(rows) if author >= 0}
    while True:
        owns: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for row in left:
            landmark, author = rows[row]
            owns["landmark", landmark].append((row, author))
            owns["author", author].append((row, landmark))
        small = [
            key
            for key, held in owns.items()
            if len(held) < (images if key[0] == "landmark" else user_images)
            or len({other for _, other in held}) < (users if key[0] == "landmark" else user_landmarks)
        ]
        if not small:
            return left
        left -= {row for row, _ in owns[max(small) if last_first else min(small)]}


tables = st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 4)), min_size=1, max_size=60)
least = st.integers(1, 4)


@settings(max_examples=200, deadline=None)
@given(rows=tables, images=least, users=least, user_images=least, user_landmarks=least, last_first=st.booleans())
def test_what_is_left_is_what_throwing_out_one_after_the_other_leaves(
    rows: Table, images: int, users: int, user_images: int, user_landmarks: int, last_first: bool
) -> None:
    table = np.array(rows, dtype=np.int64)
    kept = fixed_point(table[:, 0], table[:, 1], images, users, user_images, user_landmarks)
    limits = (images, users, user_images, user_landmarks)
    assert set(np.flatnonzero(kept).tolist()) == by_hand(rows, *limits, last_first)


def test_a_chain_that_falls_one_after_the_other() -> None:
    """Landmark k has users k and k + 1, who have one image of each of their two landmarks; the first user has only one.

    He goes, then his landmark, which leaves the next user with one, and so on to the end of the chain. The last landmark
    is held by two more users with two landmarks each, and these stay.
    """
    chain = [(k, k) for k in range(20)] + [(k, k + 1) for k in range(20)]
    stay = [(landmark, user) for landmark in (30, 31) for user in (40, 41)]
    table = np.array(chain + stay, dtype=np.int64)
    kept = fixed_point(table[:, 0], table[:, 1], images=2, users=2, user_images=2, user_landmarks=2)
    assert np.flatnonzero(kept).tolist() == [40, 41, 42, 43]


@settings(max_examples=100, deadline=None)
@given(rows=tables, chosen=st.sets(st.integers(0, 59)), most=st.integers(1, 3), seed=st.integers(0, 9))
def test_tests_are_by_others_and_at_most_so_many_a_landmark(
    rows: Table, chosen: set[int], most: int, seed: int
) -> None:
    table = np.array(rows, dtype=np.int64)
    landmark, author = table[:, 0], table[:, 1]
    kept = np.isin(np.arange(len(rows)), list(chosen)) & (author >= 0)
    tested = rows_to_test(landmark, author, kept, most, seed)
    trained_landmarks, trained_authors = set(landmark[kept].tolist()), set(author[kept].tolist())
    free = [a >= 0 and a not in trained_authors and mark in trained_landmarks for mark, a in rows]
    assert all(free[row] for row in tested)
    available = Counter(rows[row][0] for row in range(len(rows)) if free[row])
    assert Counter(rows[row][0] for row in tested) == {mark: min(count, most) for mark, count in available.items()}


# From the tables.


def write_raw(home: Path) -> tuple[Table, list[str]]:
    """Twelve users with 36 images, 6 of each of six landmarks; a seventh landmark of one user; three strangers."""
    rows: Table = [(100 + mark, user) for user in range(12) for mark in range(6) for _ in range(6)]
    rows += [(107, 0)] * 40  # one user alone
    rows += [(100 + mark, 50 + stranger) for stranger in range(3) for mark in range(5) for _ in range(5)]
    rows += [(105, 60)] * 4 + [(104, -1)] * 9
    images = [f"{number * 2654435761 % 2**32:08x}" for number in range(len(rows))]
    folder = home / "landmarks"
    folder.mkdir()
    shown = defaultdict(list)
    for image, (mark, _) in zip(images, rows, strict=True):
        shown[mark].append(image)
    lines = [f"{mark},{' '.join(held)}" for mark, held in shown.items()]
    (folder / "train_clean.csv").write_text("landmark_id,images\n" + "\n".join(lines) + "\n")
    authors = [f'"Müller, {user}"' if user >= 0 else "" for _, user in rows]
    entries = [f'{i},http://x,{a},CC,"A, b"' for i, a in zip(images, authors, strict=True)]
    header = "id,url,author,license,title"
    (folder / "train_attribution.csv").write_text(
        "\n".join([header, "ffffffffff,http://y,other,CC,t", *entries[::-1]]) + "\n"
    )
    return rows, images


def test_the_split_made_from_the_tables(home: Path) -> None:
    rows, images = write_raw(home)
    data = landmarks(source="raw", size=8)
    about = dict(zip(images, rows, strict=True))
    files = data.prepare.keywords["images"].source  # type: ignore[union-attr]
    trained = [about[files.path(number).stem] for number in data.train.x.tolist()]
    tested = [about[files.path(number).stem] for number in data.test.x.tolist()]
    assert Counter(trained) == {(100 + mark, user): 6 for user in range(12) for mark in range(6)}
    assert data.train.y.tolist() == [mark - 100 for mark, _ in trained]
    assert data.classes == 6
    assert data.train.ids is not None
    assert len(set(zip([user for _, user in trained], data.train.ids.tolist(), strict=True))) == 12
    assert Counter(mark for mark, _ in tested) == {100: 10, 101: 10, 102: 10, 103: 10, 104: 10, 105: 4}
    assert {user for _, user in tested} == {50, 51, 52, 60}
    assert data.test.ids is None, "no client is tested on images of its own"
    assert files.path(0).parts[-4:-1] == tuple(files.path(0).stem[:3])


def test_the_seed_decides_which_images_are_tested_on(home: Path) -> None:
    write_raw(home)

    def names(seed: int) -> set[str]:
        data = landmarks(source="raw", seed=seed)
        files = data.prepare.keywords["images"].source  # type: ignore[union-attr]
        return {files.path(number).stem for number in data.test.x.tolist()}

    assert names(1) == names(1) != names(2)


def test_a_landmark_with_more_images_than_a_field_of_pythons_csv_takes(home: Path) -> None:
    write_raw(home)
    with (home / "landmarks" / "train_clean.csv").open("a") as file:
        file.write("900," + " ".join(f"{number:016x}" for number in range(10_000)) + "\n")
    assert len(landmarks(source="raw").train) == 12 * 36


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train_clean.csv", "images\n", r"train_clean\.csv: its first line must be landmark_id,images"),
        (
            "train_clean.csv",
            "landmark_id,images\n",
            r"train_clean\.csv: has no rows below its first line that have images",
        ),
        ("train_clean.csv", "landmark_id,images\noak,a b\n", r"train_clean\.csv: cannot be read: invalid literal"),
        (
            "train_clean.csv",
            "landmark_id,images\n1,a b\n",
            "no landmark is left. A landmark needs 30 images and 10 users",
        ),
        (
            "train_attribution.csv",
            "id,url\n",
            r"train_attribution\.csv: has no columns 'id' and 'author'; its columns are id",
        ),
        ("train_attribution.csv", "id,author\n\0", "no landmark is left"),
    ],
)
def test_damaged_tables(home: Path, name: str, content: str, message: str) -> None:
    write_raw(home)
    (home / "landmarks" / name).write_text(content)
    with pytest.raises(DataError, match=message):
        landmarks(source="raw")


@NOT_PUBLISHED
def test_without_images_a_partition_is_shown_and_a_run_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_split(home)
    spec = {
        "run": {"rounds": 1},
        "data": {"name": "landmarks"},
        "partition": {"name": "natural"},
        "model": {"name": "mobilenet_v2", "classes": 2, "width": 0.35},
        "method": {"name": "fed_avg"},
    }
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(spec))
    monkeypatch.chdir(tmp_path)
    assert fedquilt.inspect_partition("spec.toml").skew.summary()["clients"] == 2
    with pytest.raises(SpecError, match=r"spec\.toml: \[data\] .*ffff\.jpg: there is no such image file"):
        fedquilt.run("spec.toml")
