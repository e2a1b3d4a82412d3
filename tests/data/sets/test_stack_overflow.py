from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from sample_data.arrays import write_hdf5
from torch import nn

from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import DataError
from fedquilt.data.data import IGNORED, Data, Split
from fedquilt.datasets import stack_overflow
from fedquilt.experiment.result import Result
from fedquilt.models import word_lstm

COUNTS = "the\t900\nto 800\na\t700\nclass 12\n"
OTHER, BEGIN, END = 5, 6, 7  # after four words

Authors = dict[str, list[str]]
TRAIN: Authors = {"42": ["the class", "to the zebra class a the", ""], "7": ["a"]}
TEST: Authors = {"7": ["to a"], "9": ["the the", "class"]}


def write(path: Path, authors: Authors) -> None:
    columns = ("tokens", "title", "tags", "score", "creation_date", "type")
    write_hdf5(path, {name: dict.fromkeys(columns, sentences) for name, sentences in authors.items()})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    own = tmp_path / "stackoverflow"
    own.mkdir()
    (own / "stackoverflow.word_count").write_text(COUNTS)
    write(own / "stackoverflow_train.h5", TRAIN)
    write(own / "stackoverflow_test.h5", TEST)
    return own


def by_author(split: Split) -> dict[int, list[tuple[list[int], list[int]]]]:
    assert split.ids is not None
    found: dict[int, list[tuple[list[int], list[int]]]] = {}
    for x, y, author in zip(split.x.tolist(), split.y.tolist(), split.ids.tolist(), strict=True):
        found.setdefault(author, []).append((x, y))
    return found


def test_sentences_become_numbers_as_in_the_published_experiments(folder: Path) -> None:
    """Authors are numbered in their order, those that train first: 7, 42, 9.

    The second sentence of 42 is longer than four words, and has no end.
    """
    data = stack_overflow(vocabulary=4, unroll=4)
    the, to, a, klass = 1, 2, 3, 4
    assert by_author(data.train) == {
        1: [
            ([BEGIN, the, klass, BEGIN], [the, klass, END, IGNORED]),
            ([BEGIN, to, the, OTHER], [to, the, OTHER, klass]),
            ([BEGIN] * 4, [END, IGNORED, IGNORED, IGNORED]),
        ],
        0: [([BEGIN, a, BEGIN, BEGIN], [a, END, IGNORED, IGNORED])],
    }
    assert sorted(by_author(data.test)) == [0, 2]
    assert by_author(data.test)[0] == [([BEGIN, to, a, BEGIN], [to, a, END, IGNORED])]
    assert data.classes == 8
    assert data.prepare is not None
    assert data.prepare(data.train.x).dtype == torch.int64


def test_as_much_as_is_asked_for(folder: Path) -> None:
    data = stack_overflow(vocabulary=4, sentences=1, test_sentences=1)
    assert [len(rows) for rows in by_author(data.train).values()] == [1, 1]
    assert len(data.test) == 1
    drawn = {tuple(by_author(stack_overflow(vocabulary=4, clients=1, seed=seed).train)) for seed in range(8)}
    assert all(len(authors) == 1 for authors in drawn)
    assert {len(stack_overflow(vocabulary=4, clients=1, seed=seed).train) for seed in range(8)} == {1, 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 3\nto 2\n", "has 2 words, but vocabulary = 4"),
        ("", "has 0 words, but vocabulary = 4"),
        ("the 3\nto\n", r"line 2: must be a word that did not occur before and its count, got 'to\\n'"),
        ("the 3\nthe 2\n", "line 2: must be a word that did not occur before and its count"),
        ("the many\n", "line 1: must be a word that did not occur before and its count"),
    ],
)
def test_a_damaged_file_of_words(folder: Path, content: str, message: str) -> None:
    (folder / "stackoverflow.word_count").write_text(content)
    with pytest.raises(DataError, match=f"stackoverflow.word_count.*{message}"):
        stack_overflow(vocabulary=4)


def test_no_sentences(folder: Path) -> None:
    write(folder / "stackoverflow_train.h5", {"42": []})
    with pytest.raises(DataError, match=r"stackoverflow_train.h5: has no sentences"):
        stack_overflow(vocabulary=4)


def test_a_missing_column(folder: Path) -> None:
    with h5py.File(folder / "stackoverflow_train.h5", "a") as file:
        del file["examples/7/tokens"]
    with pytest.raises(DataError, match=r"stackoverflow_train.h5: examples/7 has no column 'tokens'"):
        stack_overflow(vocabulary=4)


def test_numbers_instead_of_text(folder: Path) -> None:
    with h5py.File(folder / "stackoverflow_train.h5", "w") as file:
        file["examples/7/tokens"] = np.arange(3)
    with pytest.raises(DataError, match=r"examples/7/tokens must be text, got int64"):
        stack_overflow(vocabulary=4)


def test_missing(folder: Path) -> None:
    (folder / "stackoverflow.word_count").unlink()
    with pytest.raises(DataError, match=r"stackoverflow/stackoverflow.word_count is missing .* TensorFlow Federated"):
        stack_overflow(vocabulary=4)


def test_a_round(folder: Path, train_by_id: Callable[[Data, nn.Module], Result]) -> None:
    torch.manual_seed(0)
    result = train_by_id(stack_overflow(vocabulary=4), word_lstm(vocabulary=8, embedding=4, hidden=8))
    assert result.history.records[0]["examples"] == 4


def test_more_than_memory_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_MEMORY", "100MB")
    with pytest.raises(DataError, match=r"stackoverflow_train.h5: . sentences would take"):
        stack_overflow(vocabulary=4, unroll=10**7)
    with pytest.raises(ArgumentError, match=r"unroll: is too large: so many would take"):
        stack_overflow(vocabulary=4, unroll=10**14)
    monkeypatch.setenv("FEDQUILT_MEMORY", "10000000GB")
    with h5py.File(folder / "stackoverflow_train.h5", "w") as file:
        file.create_dataset("examples/42/tokens", shape=(10**14,), dtype=h5py.string_dtype(), chunks=(1,))
    with pytest.raises(DataError, match=r"stackoverflow_train.h5: examples/42/tokens claims 100,000,000,000,000 rows"):
        stack_overflow(vocabulary=4, unroll=4, sentences=10**14)
