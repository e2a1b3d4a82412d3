"""A file that is not the published one: every data set that knows its digest refuses it, and `check = false` uses it."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedquilt
from fedquilt.base import registry
from fedquilt.base.errors import DataError
from fedquilt.cli import app as cli
from fedquilt.data.data import Data
from fedquilt.data.fetch.published import all_by_hand
from fedquilt.data.sets.libsvm import SETS

PLAY = "HAMLET\n\nby William Shakespeare\n\nDramatis Personae\n\n  Ber. Who's there?\n    Nay.\n    Stand.\n    Go.\n"


def write_idx(folder: Path) -> None:
    folder.mkdir()
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 28, 28) + bytes(2 * 784)
        )
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1]) + struct.pack(">I", 2) + bytes([3, 7]))


def write_cifar(folder: Path, names: list[str], labels: int) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(bytes(2 * (labels + 3072)))


def write_libsvm(folder: Path) -> None:
    folder.mkdir()
    about = SETS["svmguide1"]
    assert about.test is not None
    for part in (about.train, about.test):
        (folder / part.file).write_text("".join(f"{row % 2} 4:{row}\n" for row in range(part.rows)))


def write_shakespeare(folder: Path) -> None:
    folder.mkdir()
    (folder / "t8.shakespeare.txt").write_text(PLAY)


def write_splits(folder: Path, train: str, test: str, column: str) -> None:
    folder.mkdir()
    (folder / train).write_text(f"image_id,class,{column}\na,0,x\nb,1,y\n")
    (folder / test).write_text("image_id,class\nc,1\n")


BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
SETS_WITH_DIGESTS: dict[str, tuple[Callable[[Path], None], Callable[..., Data], str]] = {
    "mnist": (lambda home: write_idx(home / "mnist"), fedquilt.mnist, "mnist"),
    "fashion_mnist": (lambda home: write_idx(home / "fashion-mnist"), fedquilt.fashion_mnist, "fashion_mnist"),
    "cifar10": (lambda home: write_cifar(home / "cifar10", BATCHES, 1), fedquilt.cifar10, "cifar10"),
    "cifar100": (
        lambda home: write_cifar(home / "cifar100", ["train.bin", "test.bin"], 2),
        fedquilt.cifar100,
        "cifar100",
    ),
    "libsvm": (
        lambda home: write_libsvm(home / "libsvm"),
        lambda **check: fedquilt.libsvm("svmguide1", **check),
        "svmguide1",
    ),
    "shakespeare": (lambda home: write_shakespeare(home / "shakespeare"), fedquilt.shakespeare, "shakespeare"),
    "inaturalist": (
        lambda home: write_splits(home / "inaturalist", "iNaturalist_train.csv", "iNaturalist_test.csv", "user_120k"),
        fedquilt.inaturalist,
        "inaturalist",
    ),
    "landmarks": (
        lambda home: write_splits(home / "landmarks", "mini_gld_train_split.csv", "mini_gld_test.csv", "user_id"),
        lambda **check: fedquilt.landmarks("23k", **check),
        "landmarks",
    ),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    return tmp_path


def info(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fedquilt", "data", "info", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.filterwarnings("ignore:.* differs from what was published:RuntimeWarning")
@pytest.mark.parametrize("name", SETS_WITH_DIGESTS)
def test_another_file_is_refused_unless_it_is_not_checked(home: Path, name: str) -> None:
    write, load, _ = SETS_WITH_DIGESTS[name]
    write(home)
    with pytest.raises(
        DataError,
        match=r"differs from the published file: (SHA-256|MD5) \w+, expected \w+; .* anyway with `check = false`",
    ):
        load()
    assert len(load(check=False).train) > 0


def test_every_data_set_with_a_digest_is_among_them() -> None:
    taking = {name for name in registry.datasets if "check" in registry.datasets[name].__annotations__}
    assert taking == set(SETS_WITH_DIGESTS)
    assert {name for name, known in all_by_hand().items() if any(each.digests for each in known.wanted)} <= taking


@pytest.mark.parametrize("name", SETS_WITH_DIGESTS)
def test_info_tells_which_files_are_not_the_published_ones(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, _, called = SETS_WITH_DIGESTS[name]
    write(home)
    assert info(monkeypatch, called) == 0
    assert "as published: " not in capsys.readouterr().out
    assert info(monkeypatch, called, "--check") == 2
    said = capsys.readouterr()
    wrong = [line for line in said.out.splitlines() if line.startswith("not as published: ")]
    files = [path for path in home.rglob("*") if path.is_file()]
    assert sorted(line.split(": ")[1] for line in wrong) == sorted(map(str, files))
    assert f"{called}: {len(files)} of {len(files)} files are not as published" in said.err


def test_info_tells_which_files_are_the_published_ones(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    wanted = all_by_hand()["shakespeare"].wanted[0]
    monkeypatch.setitem(wanted.digests, "t8.shakespeare.txt", digest)
    (home / "t8.shakespeare.txt").write_text("abc")
    (home / "fed_emnist_train.h5").write_bytes(np.zeros(9).tobytes())
    assert info(monkeypatch, "shakespeare", "--check") == 0
    assert f"\nas published: {home}/t8.shakespeare.txt\n" in capsys.readouterr().out
    assert info(monkeypatch, "femnist", "--check") == 0
    assert f"\nno digest is known: {home}/fed_emnist_train.h5\n" in capsys.readouterr().out
    assert info(monkeypatch, "stack_overflow", "--check") == 0
    assert "There are no files to check." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("shakespeare", "(McMahan 2017): 1,146 clients, 3,564,579 characters to train, 870,014 to test\n"),
        ("femnist", "3,383 clients, 341,873 examples to train, 40,832 to test, 10 classes (with only_digits = true)\n"),
        (
            "stack_overflow",
            "342,477 clients, 135,818,730 sentences to train, 16,586,035 to test (of 204,088 clients)\n",
        ),
        ("inaturalist", '3,606 clients, 35,641 images to test, 1,203 classes (with split = "geo_100")\n'),
    ],
)
def test_info_has_the_published_counts(
    home: Path, name: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert info(monkeypatch, name) == 0
    assert line in capsys.readouterr().out
