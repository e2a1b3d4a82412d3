"""Partitions as files: the same again, and whatever is wrong with a file is said."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fedquilt
from fedquilt.base.errors import DataError
from fedquilt.partition.stored import describe_stored, to_bytes

LABELS = np.repeat(np.arange(3), 10)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "partition.npz"
    path.write_bytes(to_bytes(fedquilt.iid(LABELS, clients=4), LABELS, {"name": "iid", "clients": 4}))
    return path


def rewritten(path: Path, **arrays: object) -> Path:
    """Replace arrays of a file."""
    with np.load(path, allow_pickle=False) as before:
        kept = {name: before[name] for name in before.files}
    np.savez(path, **kept | arrays)
    return path


def about(path: Path, **changes: object) -> np.ndarray:
    return np.frombuffer(json.dumps(describe_stored(path) | changes).encode(), dtype=np.uint8)


def test_it_is_the_same_again(file: Path) -> None:
    held, again = fedquilt.iid(LABELS, clients=4), fedquilt.stored(file, LABELS)
    assert np.array_equal(held.indices, again.indices)
    assert np.array_equal(held.offsets, again.offsets)
    assert again.client(0).dtype == np.int64
    assert describe_stored(file)["made_by"] == {"name": "iid", "clients": 4}


def test_own_tests_and_noise_are_kept(blobs: fedquilt.Data, smooth, tmp_path: Path) -> None:
    labels = blobs.train.y.numpy()
    held = fedquilt.feature_skew(labels, clients=4, sigma=0.5, seed=3, own_test=True, data=blobs)
    path = tmp_path / "partition.npz"
    path.write_bytes(to_bytes(held, labels, test_rows=len(blobs.test)))
    again = fedquilt.stored(path, labels, data=blobs)
    results = [
        fedquilt.train(smooth, blobs, each, fedquilt.fed_avg(fraction=0.5), rounds=2, engine=fedquilt.inline())
        for each in (held, again)
    ]
    assert results[0].digest == results[1].digest
    assert (
        results[0].history.records[-1]["per_client_accuracy"] == results[1].history.records[-1]["per_client_accuracy"]
    )


def test_another_data_set_is_refused(file: Path) -> None:
    with pytest.raises(DataError, match="was made for another data set: its labels differ"):
        fedquilt.stored(file, LABELS[::-1].copy())


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file or folder; .*`fedquilt partition SPEC --out FOLDER` writes one"):
        fedquilt.stored(tmp_path / "nothing.npz", LABELS)


BROKEN = {
    "falling offsets": ({"offsets": np.array([0, 20, 10, 25, 30])}, "offsets must increase from 0 to 30"),
    "offsets that end early": ({"offsets": np.array([0, 10, 20])}, "offsets must increase from 0 to 30"),
    "no clients": ({"offsets": np.array([0])}, "offsets must increase"),
    "fractions": ({"indices": np.arange(30) / 2}, "indices must be a one-dimensional array of integers"),
    "a table": ({"indices": np.zeros((5, 6), dtype=np.int64)}, "indices must be a one-dimensional array of integers"),
    "beyond the end": ({"indices": np.arange(1, 31)}, "indices must be between 0 and 29"),
    "negative": ({"indices": np.arange(-1, 29)}, "indices must be between 0 and 29"),
    "objects": ({"indices": np.array([{}] * 30, dtype=object)}, "indices.npy does not match its header"),
    "noise for others": ({"noise": np.zeros(7, dtype=np.float32)}, "noise must be one number of 0 or more for each"),
    "no description": ({"about": np.zeros(3, dtype=np.uint8)}, "it is not marked"),
    "something else": (
        {"weights": np.zeros(3)},
        r"expected the arrays about\.npy, .*, found about\.npy, .*, weights\.npy",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_said(name: str, file: Path) -> None:
    arrays, words = BROKEN[name]
    with pytest.raises(DataError, match=words):
        fedquilt.stored(rewritten(file, **arrays), LABELS)


def test_cut_off_or_no_archive(file: Path) -> None:
    whole = file.read_bytes()
    for data in (whole[:200], b"", b"not an archive"):
        file.write_bytes(data)
        with pytest.raises(DataError, match="is not a partition file, or is damaged"):
            fedquilt.stored(file, LABELS)


def test_a_flipped_byte_is_noticed(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[data.index(b"NUMPY", 700) + 200] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(DataError):
        fedquilt.stored(file, LABELS)


def test_packed_or_lying_about_its_size(file: Path) -> None:
    """A small file that would fill the memory: packed zeros, or a header of a huge array."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("indices.npy", bytes(10**6))
    with pytest.raises(DataError, match=r"indices.npy is compressed"):
        fedquilt.stored(file, LABELS)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"shape": (10**12,), "fortran_order": False, "descr": "<i8"})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("indices.npy", header.getvalue() + bytes(80))
    with pytest.raises(DataError, match="does not match its header"):
        fedquilt.stored(file, LABELS)
