"""Every file of every data set, damaged: a message that names it, and no other kind of error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sample_data.every_data_set import CASES, Load

from fedquilt.base.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:.* differs from what was published:RuntimeWarning")

IMAGES = (".jpg", ".png")
"""Images are read when they are needed; see `test_images` for damaged ones."""

NO_FILES = {"synthetic", "digits", "mnist_5k"}
MADE = {"hugging_face", "hugging_face of images"}
"""What its library writes; it tells of its own damage in many ways, and each is a DataError."""


@pytest.fixture
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Load, list[Path]]]:
    """A data set's loader and files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDQUILT_DATA", str(tmp_path))
        load = CASES[request.param].write(tmp_path, patch)
        files = sorted(f for f in tmp_path.rglob("*") if f.is_file() and f.suffix not in IMAGES and needed(load, f))
        assert files
        yield load, files


def needed(load: Load, file: Path) -> bool:
    """Say whether a data set reads this file: images' sets are written several at once."""
    content = file.read_bytes()
    file.unlink()
    try:
        load()
    except DataError:
        return True
    finally:
        file.write_bytes(content)
    return False


each = pytest.mark.parametrize("written", sorted(CASES.keys() - NO_FILES - MADE), indirect=True)


@each
@pytest.mark.parametrize("content", [b"", b"\xff\x00\x81" * 50], ids=["empty", "noise"])
def test_an_empty_file_or_noise_is_refused_by_name(written: tuple[Load, list[Path]], content: bytes) -> None:
    load, files = written
    for file in files:
        before = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(DataError, match=file.name):
            load()
        file.write_bytes(before)
    load()


@each
def test_a_cut_or_changed_file_is_refused_or_read(written: tuple[Load, list[Path]]) -> None:
    """Text that is cut may still make sense; whatever happens, it is no other error."""
    load, files = written
    rng, refused = np.random.default_rng(0), 0
    for file in files:
        before = file.read_bytes()
        cuts = [before[: len(before) * share // 10] for share in (1, 5, 9)]
        places = rng.integers(len(before), size=6)
        changed = [before[:place] + bytes([before[place] ^ 0xFF]) + before[place + 1 :] for place in places]
        for content in [*cuts, *changed]:
            file.write_bytes(content)
            try:
                load()
            except DataError:
                refused += 1
        file.write_bytes(before)
    assert refused


@pytest.mark.timeout(60)
def test_what_the_hugging_face_library_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    load = CASES["hugging_face"].write(tmp_path, monkeypatch)
    for file in sorted((tmp_path / "saved").iterdir()):
        before = file.read_bytes()
        file.write_bytes(b"\xff" * 50)
        with pytest.raises(DataError, match="saved: cannot be loaded"):
            load()
        file.unlink()
        file.symlink_to("/dev/zero")
        with pytest.raises(DataError, match="saved: cannot be loaded"):
            load()
        file.unlink()
        file.write_bytes(before)
    load()


@each
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_device_in_place_of_a_file_is_refused_at_once(written: tuple[Load, list[Path]], kind: str) -> None:
    load, files = written
    for file in files:
        before = file.read_bytes()
        file.unlink()
        if kind == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to("/dev/zero")
        with pytest.raises(DataError, match=file.name):
            load()
        file.unlink()
        file.write_bytes(before)
