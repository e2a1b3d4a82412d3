import gzip
import json
import lzma
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from fedquilt.base.errors import DataError, MissingExtraError
from fedquilt.data.formats import rows as columns
from fedquilt.data.formats.rows import files, rows

TABLE = {"author": ["a", "b", "a"], "text": ["one", "two", "three"], "likes": [1, 2, 3]}
PAIRS = [("a", "one"), ("b", "two"), ("a", "three")]


def lines() -> bytes:
    table = zip(*TABLE.values(), strict=True)
    return "\n".join(json.dumps(dict(zip(TABLE, row, strict=True))) for row in table).encode() + b"\n\n"


def test_json_lines_packed_or_not(tmp_path: Path) -> None:
    contents = {"a.jsonl": lines(), "b.ndjson.gz": gzip.compress(lines()), "c.jsonl.xz": lzma.compress(lines())}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert list(rows(tmp_path / name, ("author", "text"))) == PAIRS


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BATCH", 2)
    pyarrow.parquet.write_table(pyarrow.table(TABLE), tmp_path / "a.parquet")
    assert list(rows(tmp_path / "a.parquet", ("author", "text"))) == PAIRS
    assert list(rows(tmp_path / "a.parquet", ("text", "author"))) == [(text, author) for author, text in PAIRS]


def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines())
    with pytest.raises(DataError, match=r"a.jsonl, line 1: has no column 'user'; there are: author, text, likes"):
        list(rows(tmp_path / "a.jsonl", ("user", "text")))
    pyarrow.parquet.write_table(pyarrow.table(TABLE), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet: has no column 'user'; there are: author, text, likes"):
        list(rows(tmp_path / "a.parquet", ("user", "text")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"author": "a", "text": "x"}\n{"author"', "line 2: is not JSON"),
        (b"[1, 2]\n", "line 1: must be a JSON object with the keys author, text"),
        (b"\xff\xfe\n", "is not JSON: .*utf-8"),
        (b"[" * 100_000, "line 1: is not JSON"),
    ],
)
def test_damaged_json_lines(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=f"a.jsonl.*{message}"):
        list(rows(tmp_path / "a.jsonl", ("author", "text")))


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl.gz", "a.jsonl.xz", "a.jsonl.bz2"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1 nothing of the kind PAR1")
    with pytest.raises(DataError, match=f"{name}(: cannot be read|, line 1: is not JSON)"):
        list(rows(tmp_path / name, ("author", "text")))


def test_a_cut_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines())[:-12])
    with pytest.raises(DataError, match=r"a.jsonl.gz: cannot be read"):
        list(rows(tmp_path / "a.jsonl.gz", ("author", "text")))


def test_another_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("author,text\n")
    with pytest.raises(DataError, match=r"a.csv: must end in one of .parquet, .jsonl"):
        list(rows(tmp_path / "a.csv", ("author", "text")))


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("2.jsonl", "1.parquet", "notes.txt"):
        (tmp_path / name).touch()
    assert [file.name for file in files(tmp_path)] == ["1.parquet", "2.jsonl"]


def test_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no files that end in .parquet"):
        files(tmp_path)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedquilt\[tables\]'"):
        list(rows(tmp_path / "a.parquet", ("author",)))


def test_flipped_bytes_are_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    content = gzip.compress(lines() * 50)
    for place in range(10, len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        with pytest.raises(DataError, match=r"a.jsonl.gz"):
            list(rows(path, ("author", "text")))


def test_parquet_with_text_that_is_none(tmp_path: Path) -> None:
    broken = pyarrow.array([b"a", b"\xff", b"b"]).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({**TABLE, "author": broken}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet: cannot be read: .*utf-8"):
        list(rows(tmp_path / "a.parquet", ("author", "text")))
