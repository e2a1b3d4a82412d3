"""Images from files: decoded on demand, cut the same way with and without a cache, and by whatever thread."""

from __future__ import annotations

import os
import pickle
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedquilt.base.errors import DataError
from fedquilt.base.records import describe
from fedquilt.data.formats.image_sources import ImageFiles
from fedquilt.data.formats.images import ImageCache, Images, Scale, augmented, prepared
from fedquilt.data.preprocess import AREA, DRAWS, RATIO, random_crop


def photo(path: Path, width: int, height: int, seed: int = 0, **options: Any) -> Path:
    """Write an image of coloured squares."""
    rng = np.random.default_rng(seed)
    squares = rng.integers(0, 256, (-(-height // 8), -(-width // 8), 3)).astype(np.uint8)
    pixels = squares.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.fixture
def album(tmp_path: Path) -> list[str]:
    """Images of several formats and shapes, in the folder of the test."""
    photo(tmp_path / "wide.jpg", 200, 90, seed=1, quality=90)
    photo(tmp_path / "high.png", 60, 170, seed=2)
    photo(tmp_path / "tiny.jpg", 20, 17, seed=3)
    Image.open(photo(tmp_path / "colours.png", 64, 64, seed=4)).convert("L").save(tmp_path / "grey.jpg")
    Image.open(tmp_path / "colours.png").convert("P").save(tmp_path / "palette.png")
    Image.open(tmp_path / "colours.png").convert("RGBA").save(tmp_path / "alpha.png")
    Image.open(tmp_path / "colours.png").convert("CMYK").save(tmp_path / "print.jpg")
    return ["wide.jpg", "high.png", "tiny.jpg", "grey.jpg", "palette.png", "alpha.png", "print.jpg"]


def test_the_middle_of_every_kind_of_image(tmp_path: Path, album: list[str]) -> None:
    files = Images(ImageFiles(tmp_path, album), size=32, scale="unit")
    x = prepared(torch.arange(len(album)), files)
    assert x.shape == (7, 3, 32, 32)
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    assert 0.0 <= x.min() < 0.1
    assert 0.9 < x.max() <= 1.0
    assert torch.equal(x[3, 0], x[3, 1])  # grey


def test_the_middle_is_seven_eighths_of_the_shorter_side(tmp_path: Path) -> None:
    """A frame as wide as what is cut off stays outside: 1/16 of the shorter side above and below, more at the sides."""
    pixels = np.zeros((160, 240, 3), dtype=np.uint8)
    pixels[10:150, 50:190] = 255
    Image.fromarray(pixels).save(tmp_path / "framed.png")
    files = Images(
        ImageFiles(tmp_path, ["framed.png"]), size=140, scale="unit"
    )  # 8/7 of 140 are 160: it is not made smaller
    assert prepared(torch.tensor([0]), files).min() == 1.0


@pytest.mark.parametrize(
    ("scale", "black", "white"),
    [
        ("unit", [0.0] * 3, [1.0] * 3),
        ("symmetric", [-1.0] * 3, [1.0] * 3),
        ("imagenet", [-2.1179, -2.0357, -1.8044], [2.2489, 2.4286, 2.6400]),
    ],
)
def test_scales(tmp_path: Path, scale: Scale, black: list[float], white: list[float]) -> None:
    Image.new("RGB", (9, 9), "black").save(tmp_path / "black.png")
    Image.new("RGB", (9, 9), "white").save(tmp_path / "white.png")
    x = prepared(torch.arange(2), Images(ImageFiles(tmp_path, ["black.png", "white.png"]), size=4, scale=scale))
    assert torch.allclose(x, torch.tensor([black, white])[:, :, None, None], atol=1e-4)


def test_augmentation_depends_on_the_draws_alone_not_on_how_many_are_made_at_once(
    tmp_path: Path, album: list[str]
) -> None:
    files, rows = Images(ImageFiles(tmp_path, album), size=24), torch.tensor([0, 3, 1, 0, 6])
    at_once = augmented(rows, np.random.default_rng(5), files)
    rng = np.random.default_rng(5)
    assert torch.equal(at_once, torch.cat([augmented(part, rng, files) for part in rows.split(2)]))
    assert not torch.equal(at_once[0], at_once[3]), "the same image is cut anew"
    assert not torch.equal(at_once, augmented(rows, np.random.default_rng(6), files))


def test_half_of_the_crops_are_mirrored(tmp_path: Path) -> None:
    """An image that gets brighter from left to right does so from right to left when mirrored."""
    ramp = np.repeat(np.linspace(0, 255, 64, dtype=np.uint8)[None, :, None], 64, axis=0).repeat(3, axis=2)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    x = augmented(
        torch.zeros(400, dtype=torch.int64), np.random.default_rng(0), Images(ImageFiles(tmp_path, ["ramp.png"]), 8)
    )
    mirrored = (x[:, 0, :, 0].mean(dim=1) > x[:, 0, :, -1].mean(dim=1)).float().mean()
    assert 0.4 < mirrored < 0.6


@settings(max_examples=200, deadline=None)
@given(width=st.integers(1, 900), height=st.integers(1, 900), seed=st.integers(0, 2**32 - 1))
def test_crops_lie_in_the_image_and_have_the_area_and_ratio_asked_for(width: int, height: int, seed: int) -> None:
    crop = random_crop(width, height, np.random.default_rng(seed).random(DRAWS))
    assert 0 <= crop.left <= crop.left + crop.width <= width
    assert 0 <= crop.top <= crop.top + crop.height <= height
    assert crop.width > 0 < crop.height
    if min(width, height) > 100 and max(width, height) < 1.3 * min(width, height):  # no fallback, little rounding
        assert AREA[0] * 0.95 < crop.width * crop.height / (width * height) <= AREA[1]
        assert RATIO[0] * 0.95 < crop.width / crop.height < RATIO[1] * 1.05


def test_a_crop_that_never_fits_is_the_middle_ratio() -> None:
    assert random_crop(1000, 10, np.full(DRAWS, 0.99))[2:4] == (13, 10)
    assert random_crop(10, 1000, np.full(DRAWS, 0.99))[2:4] == (10, 13)


# The cache.


def test_the_cache_changes_no_bits_and_spares_the_decoding(tmp_path: Path, album: list[str]) -> None:
    rows = torch.arange(len(album))
    plain = augmented(rows, np.random.default_rng(1), Images(ImageFiles(tmp_path, album), size=24))
    cached = Images(ImageFiles(tmp_path, album), size=24, cache=tmp_path / "cache")
    assert torch.equal(plain, augmented(rows, np.random.default_rng(1), cached))
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == len(album)
    for name in album:  # the same length and time of change: only the cache can know what was there
        about = (tmp_path / name).stat()
        (tmp_path / name).write_bytes(b"\0" * about.st_size)
        os.utime(tmp_path / name, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert torch.equal(plain, augmented(rows, np.random.default_rng(1), cached))
    with pytest.raises(DataError, match="cannot be read"):
        prepared(rows, Images(ImageFiles(tmp_path, album), size=24))


def test_a_file_that_changes_is_decoded_again(tmp_path: Path) -> None:
    files = Images(ImageFiles(tmp_path, ["a.png"]), size=8, scale="unit", cache=tmp_path / "cache")
    Image.new("RGB", (9, 9), "black").save(tmp_path / "a.png")
    assert files.ready(torch.tensor([0]), None).max() == 0.0
    Image.new("RGB", (9, 9), "white").save(tmp_path / "a.png")
    os.utime(tmp_path / "a.png", ns=(1, 1))
    assert files.ready(torch.tensor([0]), None).min() == 1.0


def test_another_size_is_another_entry(tmp_path: Path) -> None:
    photo(tmp_path / "a.png", 90, 90)
    for size in (8, 16):
        files = Images(ImageFiles(tmp_path, ["a.png"]), size=size, cache=tmp_path / "cache")
        assert files.small(0).shape[0] == -(-size * 8 // 7)
        assert torch.equal(prepared(torch.tensor([0]), files), prepared(torch.tensor([0]), files))
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 2


@pytest.mark.parametrize("damage", ["cut", "emptied", "pickled", "of floats"])
def test_a_damaged_entry_counts_as_none(tmp_path: Path, damage: str) -> None:
    photo(tmp_path / "a.png", 30, 30)
    files = Images(ImageFiles(tmp_path, ["a.png"]), size=8, cache=tmp_path / "cache")
    expected = files.small(0).copy()
    (entry,) = (tmp_path / "cache").rglob("*.npy")
    if damage == "cut":
        entry.write_bytes(entry.read_bytes()[:-1])
    elif damage == "emptied":
        entry.write_bytes(b"")
    elif damage == "pickled":
        np.save(entry, np.array([{}], dtype=object), allow_pickle=True)
    else:
        np.save(entry, np.zeros((10, 10, 3)))
    assert ImageCache(tmp_path / "cache").get(f"{files.source.key(0)}\n10") is None
    assert np.array_equal(files.small(0), expected)
    assert np.array_equal(np.load(entry), expected)


def test_many_threads_fill_one_cache(tmp_path: Path) -> None:
    names = [photo(tmp_path / f"{i}.png", 40, 40, seed=i).name for i in range(6)]
    files = Images(ImageFiles(tmp_path, names), size=16, cache=tmp_path / "cache")
    expected = prepared(torch.arange(6), Images(ImageFiles(tmp_path, names), size=16))
    made: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: made.append(prepared(torch.arange(6), files))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert all(torch.equal(x, expected) for x in made)
    assert {path.suffix for path in (tmp_path / "cache").rglob("*.*")} == {".npy"}


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cache: the folder .*file/cache cannot be created"):
        Images(ImageFiles(tmp_path, []), size=8, cache=tmp_path / "file" / "cache")


# What is wrong with a file is said with its name.


@pytest.mark.parametrize("name", ["whole.jpg", "whole.png"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.95])
def test_a_file_that_ends_early(tmp_path: Path, name: str, share: float) -> None:
    content = photo(tmp_path / name, 120, 120).read_bytes()
    (tmp_path / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=rf"{name}: the image cannot be read"):
        prepared(torch.tensor([0]), Images(ImageFiles(tmp_path, [name]), size=16))


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), ending=st.sampled_from(["jpg", "png"]))
def test_a_changed_byte_gives_an_image_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, ending: str
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    content = bytearray(photo(folder / f"a.{ending}", 40, 40).read_bytes())
    content[place % len(content)] = byte
    (folder / f"a.{ending}").write_bytes(content)
    try:
        assert prepared(torch.tensor([0]), Images(ImageFiles(folder, [f"a.{ending}"]), size=16)).shape == (1, 3, 16, 16)
    except DataError as error:
        assert f"a.{ending}: " in str(error)  # noqa: PT017


def test_a_missing_file(tmp_path: Path) -> None:
    files = Images(ImageFiles(tmp_path, ["gone.jpg"], "Put it there."), size=16, cache=tmp_path / "cache")
    with pytest.raises(DataError, match=r"gone\.jpg: there is no such image file\. Put it there\."):
        prepared(torch.tensor([0]), files)


@pytest.mark.parametrize("most", [99, 199])  # Pillow itself raises above twice its limit and warns below
def test_an_image_with_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    photo(tmp_path / "bomb.png", 20, 10)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
    with pytest.raises(DataError, match=rf"bomb\.png: the image has more than {most} pixels"):
        prepared(torch.tensor([0]), Images(ImageFiles(tmp_path, ["bomb.png"]), size=4))


# Runs are told apart by what decides values, wherever the files lie.


def test_a_description_names_no_folder_and_every_file(tmp_path: Path) -> None:
    def described(names: list[str], folder: Path = tmp_path, **options: Any) -> str:
        return describe(partial(prepared, images=Images(ImageFiles(folder, names), 8, **options)))

    names = [f"{i}.jpg" for i in range(2000)]
    assert described(names) == described(names, folder=Path("elsewhere"), cache=tmp_path / "cache")
    assert str(tmp_path) not in described(names)
    assert described(names) != described([*names[:1000], "x.jpg", *names[1001:]])
    assert described(names) != described(names, scale="unit")


def test_files_can_be_sent_to_workers(tmp_path: Path, album: list[str]) -> None:
    files = Images(ImageFiles(tmp_path, album), size=8, cache=tmp_path / "cache")
    sent = pickle.loads(pickle.dumps(files))  # noqa: S301 – our own bytes
    assert torch.equal(prepared(torch.arange(7), files), prepared(torch.arange(7), sent))
