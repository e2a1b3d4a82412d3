import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_data.texts import PLAYS
from torch import nn

import fedquilt
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import DataError
from fedquilt.data.data import IGNORED, Data, Split
from fedquilt.data.fetch.folders import find
from fedquilt.data.sets.shakespeare import BEGIN, DIGEST, END, Role, by_role, read_text, roles, shakespeare
from fedquilt.experiment.result import Result
from fedquilt.models import char_lstm


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    (tmp_path / "shakespeare").mkdir()
    return tmp_path / "shakespeare"


def test_roles_of_plays() -> None:
    """No poem; of a list of persons what looks like a speech; directions inside a speech stay, headings end it."""
    assert roles(PLAYS) == [
        Role("HAMLET", "CLAUDIUS", ["King of Denmark"]),
        Role(
            "HAMLET",
            "BER",
            ["Who's there?", "Long live the King!", "He.", "In the", "second scene."],
        ),
        Role(
            "HAMLET",
            "FRAN",
            ["Nay, answer me. Stand and", "unfold yourself.                    Exit", " " * 8 + "Enter Horatio."],
        ),
        Role("THE COMEDY OF ERRORS", "DUKE", ["Merchant of Syracuse,", "plead no more."]),
        Role("THE COMEDY OF ERRORS", "AEGEON", ["Yet this"]),
    ]


def text_of(split: Split, row: int) -> str:
    return bytes(symbol for symbol in split.y[row].tolist() if symbol not in (END, IGNORED)).decode()


def made(*sizes: int, unroll: int = 12) -> Data:
    """Roles with lines "role 0 line 1" and so on."""
    chosen = [Role("P", f"R{r}", [f"{r}:{line}" for line in range(size)]) for r, size in enumerate(sizes)]
    return by_role(chosen, unroll, Path("some.txt"))


def test_the_last_fifth_of_a_roles_lines_is_tested() -> None:
    data = made(2, 4, 10, 11)
    assert data.train.ids is not None
    assert data.test.ids is not None
    assert np.bincount(data.train.ids).tolist() == [1, 3, 8, 9]
    assert np.bincount(data.test.ids).tolist() == [1, 1, 2, 2]
    assert [text_of(data.test, row) for row in range(6)] == ["0:1", "1:3", "2:8", "2:9", "3:9", "3:10"]


def test_a_line_is_an_example() -> None:
    data = made(2, unroll=6)
    assert data.train.x.tolist() == [[BEGIN, *b"0:0", BEGIN, BEGIN]]
    assert data.train.y.tolist() == [[*b"0:0", END, IGNORED, IGNORED]]
    assert data.classes == 258
    assert data.prepare is not None
    assert data.prepare(data.train.x).dtype == torch.int64


def test_a_longer_line_is_cut() -> None:
    data = by_role([Role("P", "R", ["abcd", "e"])], 2, Path("some.txt"))
    assert data.train.x.tolist() == [[BEGIN, *b"a"], [*b"bc"], [*b"d", BEGIN]]
    assert data.train.y.tolist() == [[*b"ab"], [*b"cd"], [END, IGNORED]]
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [0, 0, 0]


def test_packed_or_not(folder: Path) -> None:
    (folder / "t8.shakespeare.txt").write_text(PLAYS)
    assert read_text(None)[0] == PLAYS
    (folder / "t8.shakespeare.txt.xz").write_bytes(lzma.compress(PLAYS.replace("Ber.", "Bernardo.").encode()))
    assert "Bernardo" in read_text(None)[0]


def test_another_text(folder: Path) -> None:
    (folder / "t8.shakespeare.txt").write_text(PLAYS)
    with pytest.raises(DataError, match=DIGEST):
        shakespeare()


@pytest.mark.parametrize("content", [b"no xz at all", lzma.compress(PLAYS.encode())[:-30]])
def test_a_damaged_file(folder: Path, content: bytes) -> None:
    (folder / "t8.shakespeare.txt.xz").write_bytes(content)
    with pytest.raises(
        DataError, match=r"t8.shakespeare.txt.xz: (cannot be read|the content differs from the published file)"
    ):
        shakespeare()


def test_an_empty_file(folder: Path) -> None:
    (folder / "t8.shakespeare.txt").touch()
    with pytest.raises(DataError, match="is empty"):
        shakespeare()


def test_missing(folder: Path) -> None:
    with pytest.raises(DataError, match=r"shakespeare/t8.shakespeare.txt.xz is missing .* Gutenberg"):
        shakespeare()


def test_no_plays() -> None:
    with pytest.raises(DataError, match=r"some.txt: contains no role of a play"):
        by_role(roles("Sonnets"), 80, Path("some.txt"))


def test_a_role_needs_two_lines() -> None:
    with pytest.raises(ArgumentError, match="least_lines: must be at least 2, got 1"):
        shakespeare(least_lines=1)


def small() -> nn.Module:
    torch.manual_seed(0)
    return char_lstm(vocabulary=258, embedding=4, hidden=8, layers=1)


def test_a_round(train_by_id: Callable[[Data, nn.Module], Result]) -> None:
    result = train_by_id(made(2, 4, 10, 30), small())
    assert result.history.records[0]["examples"] == 1 + 3 + 8 + 24


def needs_shakespeare() -> None:
    if not os.environ.get("FEDQUILT_DATA"):
        pytest.skip("FEDQUILT_DATA is not set")
    try:
        find("shakespeare/t8.shakespeare.txt.xz", "shakespeare/t8.shakespeare.txt")
    except DataError as error:
        pytest.skip(str(error))


def roles_of(split: Split) -> int:
    assert split.ids is not None
    return len(np.unique(split.ids))


@pytest.mark.real_data
def test_the_published_counts() -> None:
    """McMahan 2017, section 3: 1,146 clients, 3,564,579 and 870,014 characters."""
    needs_shakespeare()
    data = shakespeare()
    assert roles_of(data.train) == roles_of(data.test) == 1145
    characters = [int((split.y != IGNORED).sum()) for split in (data.train, data.test)]
    assert characters == [3_564_304, 870_197]
    assert characters[0] == pytest.approx(3_564_579, rel=1e-4)
    assert characters[1] == pytest.approx(870_014, rel=3e-4)
    assert len(data.train) == 84_919  # lines; the test part has one that is longer than 80, in two pieces
    assert len(data.test) == 20_789 + 1
    # The whole text in memory: two bytes a place for inputs, two for targets.
    assert data.train.x.element_size() == data.train.y.element_size() == 2


@pytest.mark.real_data
def test_the_papers_u() -> None:
    """Table 2: u = E·n/(K·B) is 1.5, 7.4 and 37.1. It takes lines as examples, and roles of more than two lines."""
    needs_shakespeare()

    def u(examples: int, clients: int) -> list[float]:
        return [round(e * examples / (clients * b), 1) for e, b in ((1, 50), (1, 10), (5, 10))]

    data, more = shakespeare(), shakespeare(least_lines=2)
    assert u(len(data.train), roles_of(data.train)) == [1.5, 7.4, 37.1]
    windows = int((data.train.y != IGNORED).sum()) // 80
    assert u(windows, roles_of(data.train)) == [0.8, 3.9, 19.5]
    assert roles_of(more.train) == 1202
    assert u(len(more.train), roles_of(more.train)) == [1.4, 7.1, 35.3]


@pytest.mark.real_data
def test_the_balanced_version_has_the_same_split() -> None:
    """As many clients, each with as many lines; what is tested stays apart."""
    needs_shakespeare()
    data = shakespeare()
    held = fedquilt.iid(data.train.y.numpy(), clients=1145)
    assert sorted(held.indices.tolist()) == list(range(len(data.train)))
    assert {int(size) for size in held.sizes} == {74, 75}
    method = fedquilt.fed_avg(lr=1.0, fraction=0.002, batch=10)
    result = fedquilt.train(small(), data, held, method, rounds=1, engine=fedquilt.processes(workers=2))
    assert result.history.loss[-1] < np.log(258)
