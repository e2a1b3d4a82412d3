"""JSON and Parquet files, whole or row by row, after a look at how much memory they would take.

A few kilobytes of either can stand for any amount of values. Read row by row, a file never is in memory as a whole.
JSON Lines is text with one object per line (`{"author": "a", "text": "Hello"}`), packed with gzip, bzip2 or xz or not.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fedquilt.base.errors import DataError, listed, optional
from fedquilt.base.memory import allowed, require_memory
from fedquilt.data.files import LINE_SHARE, lines, require_regular, unpacked

LINES = (".jsonl", ".ndjson")
ENDINGS = (".parquet", *LINES, *(f"{kind}{packed}" for kind in LINES for packed in (".gz", ".bz2", ".xz")))
BATCH = 2**13
"""Rows of a Parquet file read at a time."""

_SMALL = 2**16
"""Text of fewer bytes is not looked at: what it makes is small."""

# Bytes that a value takes in Python, by the sign that comes with it: an object, an array, a value, a key, half a string.
_BYTES = {b"{": 240, b"[": 90, b",": 40, b":": 60, b'"': 30}


def read_json(path: Path) -> Any:
    """Read a file of JSON, packed or not."""
    with unpacked(path) as file:
        require_memory(f"{path}: its text", path.stat().st_size)
        return parse_json(str(path), file.read())


def parse_json(where: str, content: bytes) -> Any:
    """Return what JSON text holds; a DataError names the position if that is none, or takes too much memory."""
    if len(content) > _SMALL:
        held = sum(content.count(sign) * size for sign, size in _BYTES.items())
        require_memory(f"{where}: its content", 3 * len(content) + held)
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not JSON: {error}") from None


@contextmanager
def parquet_file(path: Path, texts: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file; what goes wrong in reading is a DataError.

    Of the columns `texts`, those that hold text are read as numbers and a dictionary: equal values are in memory once.
    """
    pyarrow = optional("pyarrow", f"{path}: reading Parquet", "tables")
    parquet = import_module("pyarrow.parquet")
    try:
        require_regular(path)
        about = parquet.read_metadata(path)
        known = {about.schema.column(index).path for index in range(about.num_columns)}
        for number in range(about.num_row_groups):
            require_memory(f"{path}: part {number + 1}", about.row_group(number).total_byte_size)
        shared = [name for name in texts if name in known]
        with parquet.ParquetFile(path, metadata=about, read_dictionary=shared) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def text_size(file: Any, columns: Sequence[str]) -> int:
    """Return how many bytes some columns have, unpacked, as the file says."""
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)


def files(path: Path) -> list[Path]:
    """Return the file, or those of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS))
    if not found:
        raise DataError(f"{path}: has no files that end in {', '.join(ENDINGS)}")
    return found


def rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns, row by row; a column that is missing is an error that names the row."""
    if path.suffix == ".parquet":
        yield from _of_parquet(path, columns)
        return
    if not path.name.endswith(ENDINGS):
        raise DataError(f"{path}: must end in one of {', '.join(ENDINGS)}")
    for number, line in enumerate(lines(path), start=1):
        if line.isspace():
            continue
        where = f"{path}, line {number}"
        row = parse_json(where, line)
        if not isinstance(row, dict):
            raise DataError(f"{where}: must be a JSON object with the keys {', '.join(columns)}")
        _require_columns(where, columns, row)
        yield tuple(row[column] for column in columns)


def _of_parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    with parquet_file(path, columns) as file:
        _require_columns(str(path), columns, file.schema_arrow.names)
        mean = text_size(file, columns) // max(file.metadata.num_rows, 1) + 1
        batch_size = max(1, min(BATCH, allowed() // LINE_SHARE // mean))
        for batch in file.iter_batches(batch_size=batch_size, columns=list(columns)):
            yield from zip(*(_values(batch.column(column)) for column in columns), strict=True)


def _values(column: Any) -> list[Any]:
    """Return a column's values; those of a dictionary are shared, since one long text may stand in every row."""
    if not hasattr(column, "dictionary"):
        return list(column.to_pylist())
    known = column.dictionary.to_pylist()
    return [None if index is None else known[index] for index in column.indices.to_pylist()]


def _require_columns(where: str, columns: Sequence[str], present: Collection[str]) -> None:
    for column in columns:
        if column not in present:
            there = listed([str(name) for name in present]) or "none"
            raise DataError(f"{where}: has no column '{column}'; there are: {there}")
