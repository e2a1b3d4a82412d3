"""Files that hold less, or more, than they claim: refused with a limit in the message, before memory is taken."""

from __future__ import annotations

import gzip
import json
import os
import struct
import tarfile
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from sample_data.arrays import write_hdf5
from sample_data.texts import write_leaf

import fedquilt
from fedquilt.base import memory
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import DataError
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.download import take_members
from fedquilt.data.files import open_file, read_unpacked, unpacked
from fedquilt.data.formats.federated_hdf5 import opened
from fedquilt.data.formats.rows import read_json, rows
from fedquilt.data.sets.mnist import FILES, read_idx
from fedquilt.models.weights import load_weights
from fedquilt.partition.stored import stored

LIMIT = r"the limit is .*, from FEDQUILT_MEMORY=\w+; set FEDQUILT_MEMORY to raise it"


def bomb(size: int, first: bytes = b"") -> bytes:
    """Return a gzip file, small, of some bytes and many zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(first)]
    parts += [packer.compress(bytes(2**20)) for _ in range(size // 2**20)]
    return b"".join([*parts, packer.flush()])


@pytest.fixture
def four_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_MEMORY", "4MB")


def test_the_limit_is_a_share_of_the_free_memory_or_as_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDQUILT_MEMORY", raising=False)
    monkeypatch.setattr(memory, "free", lambda: 4000)
    memory.require_memory("a table", 1000)
    with pytest.raises(DataError, match=r"a table would take 1 kB .* 1 kB, a quarter of the free memory, 1 kB; set F"):
        memory.require_memory("a table", 1001)
    monkeypatch.setenv("FEDQUILT_MEMORY", "2 kB")
    memory.require_memory("a table", 2000)
    with pytest.raises(DataError, match=LIMIT.replace(r"\w+", "2 kB")):
        memory.require_memory("a table", 2001)


@pytest.mark.parametrize("chosen", ["much", "-3", "1e400", "12 EB", "9" * 5000])
def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("FEDQUILT_MEMORY", chosen)
    with pytest.raises(DataError, match=r"FEDQUILT_MEMORY: must be a size such as 500MB or 12GB"):
        memory.require_memory("a table", 1)


def test_free_memory_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "Path", lambda name: Path("/no/such/file"))
    assert memory.free() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


@pytest.mark.timeout(20)
def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name, kind in (("pipe", "a pipe"), ("link", "a device"), (".", "a folder")):
        with pytest.raises(DataError, match=f"is {kind}, but must be a regular file"):
            open_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "none")
    with pytest.raises(DataError, match="is a pipe"):
        stored(tmp_path / "pipe", np.zeros(3, dtype=np.int64))
    with pytest.raises(DataError, match="is a pipe"):
        load_weights(torch.nn.Linear(2, 2), tmp_path / "pipe")


def test_a_published_check_reads_no_more_than_the_published_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gzip file that unpacks to 256 MB in place of MNIST's 47 MB, with the check on."""
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    header = bytes([0, 0, 8, 3]) + struct.pack(">3I", 340_000, 28, 28)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1]) + struct.pack(">I", 0))
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(bomb(2**28, header))
    read = counting(monkeypatch)
    with pytest.raises(DataError, match=r"declares 266560000 bytes, but the published file has at most 47040016"):
        fedquilt.mnist()
    assert read() < 2**20
    about = FILES.file("train-images-idx3-ubyte")
    with pytest.raises(DataError, match=r"has more than 47,040,016 bytes when decompressed"):
        about.check(tmp_path / "mnist" / "train-images-idx3-ubyte.gz")
    assert read() < 2 * about.size


def counting(monkeypatch: pytest.MonkeyPatch):
    """Return a function that says how many bytes gzip has unpacked."""
    total = 0
    original = gzip.GzipFile.readinto

    def readinto(self: gzip.GzipFile, buffer: object) -> int:
        nonlocal total
        count = original(self, buffer)  # type: ignore[arg-type]
        total += count
        return count

    monkeypatch.setattr(gzip.GzipFile, "readinto", readinto, raising=False)
    return lambda: total


def test_idx_without_a_published_size(tmp_path: Path, four_megabytes: None) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(bomb(2**24, bytes([0, 0, 8, 1]) + struct.pack(">I", 2**24)))
    with pytest.raises(DataError, match=rf"16,777,216 bytes of data would take 16.8 MB of memory; {LIMIT}"):
        read_idx(path, dimensions=1)


def test_packed_content_ends_at_the_limit(tmp_path: Path, four_megabytes: None) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(bomb(2**24))
    with (
        pytest.raises(
            DataError, match=rf"has more than 4,000,000 bytes when decompressed; {LIMIT}.*, or decompress the file"
        ),
        unpacked(path) as file,
    ):
        file.read()
    with pytest.raises(DataError, match="has more than 1,000 bytes when decompressed"):
        read_unpacked(path, 1000)


def test_an_archive_whose_header_asks_for_everything_at_once(tmp_path: Path) -> None:
    """The name of a member may be a member of its own, of any length."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**27
    (tmp_path / "a.tar.gz").write_bytes(bomb(2**27, header.tobuf(tarfile.GNU_FORMAT)))
    with pytest.raises(DataError, match=r"a.tar.gz: damaged: it claims a block of 134.2 MB"):
        list(take_members(tmp_path / "a.tar.gz", {"x"}, 1000, tmp_path))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_one_long_line(tmp_path: Path, four_megabytes: None, name: str) -> None:
    line = b'{"author": "a", "text": "' + b"x" * 100_000 + b'"}\n'
    (tmp_path / name).write_bytes(gzip.compress(line) if name.endswith("gz") else line)
    with pytest.raises(DataError, match=rf"{name}: line 1 is too long; the limit is 62.5 kB a line, from FEDQUILT_MEM"):
        list(rows(tmp_path / name, ("author", "text")))
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n" + b"1" * 100_000)
    with pytest.raises(DataError, match=r"a.csv: line 3 is too long; the limit is 62.5 kB a line"):
        fedquilt.table(tmp_path / "a.csv", label="y")


def test_what_json_holds_is_estimated(tmp_path: Path, four_megabytes: None) -> None:
    """A text of a megabyte that makes objects of twenty."""
    (tmp_path / "a.json").write_text("[" + ",".join(["{}"] * 300_000) + "]")
    with pytest.raises(DataError, match=rf"a.json: its content would take .* MB of memory; {LIMIT}"):
        read_json(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(json.dumps("x" * 900_000))
    assert len(read_json(tmp_path / "b.json")) == 900_000
    users = {f"user {k}": (np.eye(8)[:, :3].tolist(), (np.arange(8) % 4).tolist()) for k in range(4)}
    write_leaf(tmp_path / "leaf" / "all_data" / "all.json", users)
    assert fedquilt.leaf(tmp_path / "leaf").classes == 4


def test_parquet_of_equal_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, path = 2_000_000, tmp_path / "a.parquet"
    equal = pyarrow.array(np.zeros(count))
    pyarrow.parquet.write_table(pyarrow.table({"x": equal, "y": equal.cast("int64")}), path)
    assert path.stat().st_size < 20_000
    monkeypatch.setenv("FEDQUILT_MEMORY", "100MB")
    with pytest.raises(DataError, match=rf"2,000,000 rows of 2 columns would take 332 MB of memory; {LIMIT}"):
        fedquilt.table(path, label="y")


def test_parquet_with_one_long_text_in_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary with one text of 100 kB that 8,000 rows share: 800 MB, if every row had a copy."""
    text = pyarrow.DictionaryArray.from_arrays(np.zeros(8000, dtype=np.int32), pyarrow.array(["a " * 50_000]))
    authors = pyarrow.array([str(number) for number in range(8000)])
    pyarrow.parquet.write_table(pyarrow.table({"author": authors, "text": text}), tmp_path / "a.parquet")
    found = [text for _, text in rows(tmp_path / "a.parquet", ("author", "text"))]
    assert len(found) == 8000
    assert len({id(each) for each in found}) < 200
    monkeypatch.setenv("FEDQUILT_MEMORY", "20MB")
    with pytest.raises(DataError, match=rf"posts of .* words would take .* MB of memory; {LIMIT}"):
        fedquilt.posts(tmp_path / "a.parquet")


def test_long_names_of_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_MEMORY", "10MB")
    names = ["x" * 1000, *["y"] * 5000]
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"1,{name}\n" for name in names))
    with pytest.raises(DataError, match=r"5,001 rows, with the longest of their names in each would take 40 MB"):
        fedquilt.table(tmp_path / "a.csv", label="y")
    pyarrow.parquet.write_table(pyarrow.table({"x": np.zeros(5001), "y": names}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"5,001 labels of up to 1,000 characters would take 40 MB"):
        fedquilt.table(tmp_path / "a.parquet", label="y")


def test_a_hundred_thousand_columns(tmp_path: Path) -> None:
    names = [f"feature {number}" for number in range(100_000)]
    row = ",".join(["0"] * len(names))
    (tmp_path / "a.csv").write_text(
        "\n".join([",".join([*names, "y"]), f"{row},0", f"{row},1", f"{row},0", f"{row},1"])
    )
    start = time.perf_counter()
    data = fedquilt.table(tmp_path / "a.csv", label="y", test_fraction=0.5)
    assert data.train.x.shape == (2, 100_000)
    with pytest.raises(DataError, match=r"has no column 'z'; known: feature 0, .* and 99,961 more$") as caught:
        fedquilt.table(tmp_path / "a.csv", label="z")
    assert len(str(caught.value)) < 2000
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("classes", [10**9, 10**12, 2**62])
def test_more_classes_than_can_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int) -> None:
    monkeypatch.setenv("FEDQUILT_MEMORY", "10GB")
    message = rf"to count {classes:,} classes of 100 clients would take .* GB of memory; {LIMIT}"
    (tmp_path / "a.csv").write_text("x,y\n1,cat\n2,dog\n3,cat\n4,dog\n")
    with pytest.raises((DataError, ArgumentError), match=rf"{message}|classes: is too large: so many would take .* GB"):
        fedquilt.table(tmp_path / "a.csv", label="y", classes=classes)
    x = np.zeros((2, 3))
    with pytest.raises(DataError, match=message):
        fedquilt.arrays(x, np.array([0, 1]), x, np.array([0, 1]), classes=classes)
    with pytest.raises(DataError, match=message):
        fedquilt.arrays(x, np.array([0, classes - 1]), x, np.array([0, 1]))
    split = Split(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(DataError, match=message):
        Data("mine", split, split, classes)
    with pytest.raises((DataError, ArgumentError), match=r"synthetic: .*classes.* would take"):
        fedquilt.synthetic(classes=classes)


def test_hdf5_that_reads_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(64)))
    write_hdf5(tmp_path / "other.h5", {"a": {"label": np.arange(4)}})
    path = tmp_path / "a.h5"
    layout = h5py.VirtualLayout(shape=(4,), dtype=np.int64)
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "examples/a/label", shape=(4,))
    with h5py.File(path, "w") as file:
        file.create_dataset("examples/stored/label", shape=(8,), dtype=np.uint8, external=[(str(secret), 0, 8)])
        file.create_virtual_dataset("examples/virtual/label", layout)
        file["examples/linked/label"] = h5py.ExternalLink("other.h5", "examples/a/label")
        file["examples/group"] = h5py.ExternalLink("other.h5", "examples/a")
        file["examples/soft/label"] = h5py.SoftLink("/examples/linked/label")
    with opened(path) as clients:
        for name in ("stored", "virtual", "linked", "group", "soft"):
            with pytest.raises(
                DataError, match=rf"a.h5: examples/{name}(/label)? is (a link|stored in another file); only"
            ):
                clients.read(name, "label", 4)
    with h5py.File(path, "w") as file:
        file["examples"] = h5py.ExternalLink("other.h5", "examples")
    with pytest.raises(DataError, match=r"a.h5: examples is a link"), opened(path):
        pass


def test_hdf5_rows_that_share_one_long_text(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_hdf5(path, {"a": {"tokens": ["x" * 20_000, *[str(number) for number in range(500)]]}})
    with h5py.File(path) as file:
        first = file["examples/a/tokens"].id.get_offset()
    content = bytearray(path.read_bytes())
    content[first : first + 16 * 501] = content[first : first + 16] * 501  # every row refers to the first one's text
    path.write_bytes(content)
    with opened(path) as clients, pytest.raises(DataError, match="examples/a/tokens is damaged: its texts are longer"):
        clients.read("a", "tokens", 501)
