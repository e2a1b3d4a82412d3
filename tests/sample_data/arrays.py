"""Small binary files: MNIST's idx, CIFAR's records, TensorFlow Federated's HDF5."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fedquilt.data.fetch.published import File, PublishedData


def unchecked(files: PublishedData) -> PublishedData:
    """Return what is published of a set without the digests, which small files cannot have."""
    return replace(files, files=tuple(File(file.name, file.size) for file in files.files))


def write_idx(folder: Path, images: np.ndarray, labels: np.ndarray, part: str = "train") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        (folder / f"{part}-{name}-ubyte").write_bytes(header + array.astype(np.uint8).tobytes())


def cifar_records(labels: np.ndarray, seed: int) -> np.ndarray:
    """Return records of the label bytes given, a row each, and random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    return np.hstack([labels.astype(np.uint8), pixels])


def write_hdf5(path: Path, clients: Mapping[str, Mapping[str, Any]]) -> None:
    """Write columns by client; lists of text become text of any length."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_group("examples")
        for client, columns in clients.items():
            for name, values in columns.items():
                text = {"dtype": h5py.string_dtype()} if isinstance(values, list) else {}
                file.create_dataset(f"examples/{client}/{name}", data=values, **text)
