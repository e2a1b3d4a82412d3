"""Small sets of images: a folder and a table of one's own, iNaturalist and Landmarks, as published and raw."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image


def photo(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (6, 5 + number % 4, 3)).astype(np.uint8).repeat(5, axis=0).repeat(5, axis=1)
    Image.fromarray(pixels).save(path)


def write_images(home: Path) -> None:
    """Write small files of every set of images."""
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
    located = [{"id": i, "lat": lat, "lon": lon, "user_id": i % 7} for i, (lat, lon) in enumerate(places)]
    (folder / "train2017_locations.json").write_text(json.dumps(located))


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
