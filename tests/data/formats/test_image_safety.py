"""Images that are something else, or lie elsewhere: refused, without a program being started or another file read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fedquilt
from fedquilt.base.errors import DataError
from fedquilt.data.formats.image_sources import ImageFiles
from fedquilt.data.formats.images import FORMATS, Images, prepared

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 20 20
%%EndComments
newpath 0 0 moveto 20 20 lineto stroke
%%EOF
"""

READ = """
import sys, torch
from pathlib import Path
from fedquilt.data.formats.image_sources import ImageFiles
from fedquilt.data.formats.images import Images, prepared
from fedquilt.base.errors import DataError
try:
    prepared(torch.tensor([0]), Images(ImageFiles(Path(sys.argv[1]), ["cat.jpg"]), size=8))
except DataError as error:
    print(error)
"""


def test_no_program_is_started_for_an_eps_file(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    program.chmod(0o755)
    (tmp_path / "cat.jpg").write_bytes(EPS)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)],
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert not (tmp_path / "started").exists()
    assert f"the image cannot be read: its content is damaged, or none of {', '.join(FORMATS)}" in done.stdout


@pytest.mark.parametrize("kind", ["PPM", "ICO", "TGA", "PDF", "SGI", "JPEG2000", "DDS", "PCX"])
def test_other_formats_are_refused_whatever_their_name(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (32, 32), "red").save(tmp_path / "a.png", format=kind)
    with pytest.raises(
        DataError, match=r"a\.png: the image cannot be read: its content is damaged, or none of JPEG, PNG"
    ):
        prepared(torch.tensor([0]), Images(ImageFiles(tmp_path, ["a.png"]), size=8))


@pytest.mark.parametrize("kind", FORMATS)
def test_formats_of_the_list_are_read_whatever_their_name(tmp_path: Path, kind: str) -> None:
    frames = [Image.new("RGB", (32, 32), color) for color in ("red", "blue")]
    several = {"save_all": True, "append_images": frames[1:]} if kind in ("GIF", "TIFF", "WEBP", "PNG") else {}
    frames[0].save(tmp_path / "a.dat", format=kind, **several)
    read = prepared(torch.tensor([0]), Images(ImageFiles(tmp_path, ["a.dat"]), size=8, scale="unit"))
    assert read.mean(dim=(0, 2, 3)).numpy() == pytest.approx([1, 0, 0], abs=0.03)  # the first of its frames


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with images, and one beside it that is nobody's business."""
    for name in ("home/a.png", "home/b.png", "secret/c.png", "secret/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (9, 9), "red").save(tmp_path / name)
    return tmp_path / "home"


@pytest.mark.parametrize("name", ["{outside}/c.png", "../secret/c.png", "x/../../secret/c.png", ".", ".."])
def test_paths_that_leave_the_folder(home: Path, name: str) -> None:
    name = name.format(outside=home.parent / "secret")
    (home / "table.csv").write_text(f"path,label\na.png,x\n{name},y\na.png,y\nb.png,x\n")
    with pytest.raises(
        DataError, match=r"table\.csv: the path of image 2, '.*', leads out of the folder .*outside = true"
    ):
        fedquilt.image_folder(home, home / "table.csv", size=8, test_fraction=0.5)
    data = fedquilt.image_folder(home, home / "table.csv", size=8, test_fraction=0.5, outside=True)
    assert data.prepare is not None
    if name.endswith("c.png") and "x/" not in name:
        assert data.prepare(torch.arange(4)).shape == (4, 3, 8, 8)


@pytest.mark.parametrize("cached", [False, True])
def test_links_that_leave_the_folder(home: Path, tmp_path: Path, cached: bool) -> None:
    (home / "link.png").symlink_to("../secret/c.png")
    (home / "far").symlink_to("../secret")
    (home / "near.png").symlink_to("a.png")
    (home / "table.csv").write_text("path,label\nnear.png,x\nlink.png,y\nfar/d.png,y\nb.png,x\n")
    options: dict[str, Any] = {"size": 8, "test_fraction": 0.5, "cache": tmp_path / "cache" if cached else None}
    trusted = fedquilt.image_folder(home, home / "table.csv", outside=True, **options)
    assert trusted.prepare is not None
    assert trusted.prepare(torch.arange(4)).shape == (4, 3, 8, 8)
    data = fedquilt.image_folder(home, home / "table.csv", **options)
    assert data.prepare is not None
    assert data.prepare(torch.tensor([0, 3])).shape == (2, 3, 8, 8)
    for number, name in ((1, "link.png"), (2, "far/d.png")):
        with pytest.raises(DataError, match=rf"{name}: leads out of .*home; only images in that folder are read"):
            data.prepare(torch.tensor([number]))


def test_the_folder_itself_may_be_a_link(home: Path, tmp_path: Path) -> None:
    (tmp_path / "short").symlink_to(home)
    (home / "table.csv").write_text("path,label\na.png,x\nb.png,y\na.png,y\nb.png,x\n")
    data = fedquilt.image_folder(tmp_path / "short", home / "table.csv", size=8, test_fraction=0.5)
    assert data.prepare is not None
    assert data.prepare(torch.arange(4)).shape == (4, 3, 8, 8)


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_an_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(DataError, match=r"a\.png: is a pipe, but must be a regular file"):
            prepared(torch.tensor([0]), Images(ImageFiles(tmp_path, ["a.png"]), size=8, cache=cache))


def test_a_size_that_no_memory_holds(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"size: 64 images of 1,000,000,000 × 1,000,000,000 pixels would take"):
        Images(ImageFiles(tmp_path, ["a.png"]), size=10**9)


def test_rows_that_name_files_elsewhere(home: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("datasets", reason="needs the extra hugging_face")
    library.disable_progress_bars()
    paths = [{"bytes": None, "path": str(home.parent / "secret" / name)} for name in ("c.png", "d.png")]
    features = library.Features(
        {"image": {"bytes": library.Value("binary"), "path": library.Value("string")}, "label": library.Value("int64")}
    )
    rows = library.Dataset.from_dict({"image": paths * 2, "label": [0, 1, 1, 0]}, features=features)
    rows.save_to_disk(tmp_path / "saved")
    about = tmp_path / "saved" / "dataset_info.json"
    described = json.loads(about.read_text())  # the library itself would copy the files
    described["features"]["image"] = {"_type": "Image"}
    about.write_text(json.dumps(described))
    data = fedquilt.hugging_face(tmp_path / "saved", size=8, test_fraction=0.5)
    assert data.prepare is not None
    with pytest.raises(DataError, match=r"the image .*secret.* is outside .*saved; .* outside = true"):
        data.prepare(torch.arange(1))
    data = fedquilt.hugging_face(tmp_path / "saved", size=8, test_fraction=0.5, outside=True)
    assert data.prepare is not None
    assert data.prepare(torch.arange(4)).shape == (4, 3, 8, 8)


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """Images in folders that are named for their classes, to train and to test on."""
    for part, count in (("train", 4), ("test", 2)):
        for red, kind in enumerate(("elm", "oak", "yew")):
            (tmp_path / part / kind).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (9, 9), (80 * red, 10 * number, 0)).save(tmp_path / part / kind / f"{number}.PNG")
    (tmp_path / "train" / "oak" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / ".hidden").mkdir()
    return tmp_path


def test_folders_named_for_classes(trees: Path) -> None:
    data = fedquilt.image_folder(trees / "train", size=8, scale="unit", test=trees / "test")
    assert (len(data.train), len(data.test), data.classes) == (12, 6, 3)
    assert data.class_names == ("elm", "oak", "yew")
    assert data.train.y.tolist() == np.repeat([0, 1, 2], 4).tolist()
    assert data.prepare is not None
    for split in (data.train, data.test):
        reds = data.prepare(split.x)[:, 0].mean(dim=(1, 2)) * 255
        assert (reds / 80).round().tolist() == split.y.tolist()
    (trees / "train" / "elm" / "0.PNG").unlink()
    (trees / "train" / "elm" / "0.PNG").symlink_to(trees / "outside.png")  # beside both folders
    Image.new("RGB", (9, 9)).save(trees / "outside.png")
    with pytest.raises(DataError, match=r"0\.PNG: leads out of"):
        data.prepare(data.train.x[:1])
    held = fedquilt.image_folder(trees / "train", size=8, test_fraction=0.25)
    assert (len(held.train), len(held.test)) == (9, 3)


def test_folders_that_are_none(trees: Path) -> None:
    with pytest.raises(DataError, match=r"oak: has no folders of images; set `table`, or make one subfolder per class"):
        fedquilt.image_folder(trees / "train" / "oak")
    (trees / "train" / "empty").mkdir()
    with pytest.raises(
        DataError, match=r"empty: has no images; without a `table`, every subfolder of .*train is a class"
    ):
        fedquilt.image_folder(trees / "train")
    with pytest.raises(DataError, match=r"0\.PNG: is not a folder"):
        fedquilt.image_folder(trees / "train" / "oak" / "0.PNG")
    (trees / "test" / "fir").mkdir()
    Image.new("RGB", (9, 9)).save(trees / "test" / "fir" / "a.png")
    (trees / "train" / "empty").rmdir()
    with pytest.raises(DataError, match=r"test: the label 'fir' does not occur in .*train"):
        fedquilt.image_folder(trees / "train", test=trees / "test")
