"""Chosen columns of JSON Lines and Parquet files, read row by row: a file never is in memory as a whole.

JSON Lines is text with one object a line (`{"author": "a", "text": "Hello"}`), packed with gzip, bzip2 or xz or not.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from fedquilt.data.folders import own
from fedquilt.data.packaged import installed
from fedquilt.errors import DataError, MissingExtraError

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
LINES = (".jsonl", ".ndjson")
ENDINGS = (".parquet", *LINES, *(f"{kind}{packed}" for kind in LINES for packed in OPENERS))
BATCH = 2**13
"""Rows of a Parquet file read at a time."""


def files(path: Path) -> list[Path]:
    """Return the file, or those of a folder in the order of their names."""
    there = own(path)
    if not there.is_dir():
        return [there]
    found = sorted(file for file in there.iterdir() if file.name.endswith(ENDINGS))
    if not found:
        raise DataError(f"{there}: has no files that end in {', '.join(ENDINGS)}")
    return found


def rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns, row by row; a column that is missing is an error that names the row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "posts.jsonl")
    ...     _ = file.write_text('{"text": "Hello", "author": "a", "likes": 3}')
    ...     list(rows(file, ["author", "text"]))
    [('a', 'Hello')]
    """
    if path.suffix == ".parquet":
        yield from _of_parquet(path, columns)
        return
    if not path.name.endswith(ENDINGS):
        raise DataError(f"{path}: must end in one of {', '.join(ENDINGS)}")
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.isspace():
                    yield _of_line(f"{path}, line {number}", line, columns)
    except (EOFError, OSError, UnicodeDecodeError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _opened(path: Path) -> IO[str]:
    opener = OPENERS.get(path.suffix)
    return path.open(encoding="utf-8") if opener is None else opener(path, "rt", encoding="utf-8")  # type: ignore[operator]


def _of_line(place: str, line: str, columns: Sequence[str]) -> tuple[Any, ...]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: is no JSON: {error}") from None
    if not isinstance(row, dict):
        raise DataError(f"{place}: must be an object with keys {', '.join(columns)}")
    for column in columns:
        if column not in row:
            raise DataError(f"{place}: {_missing(column, row)}")
    return tuple(row[column] for column in columns)


def _of_parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    if not installed("pyarrow"):
        raise MissingExtraError(f"{path}: Parquet", "tables")
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for column in columns:
                if column not in file.schema_arrow.names:
                    raise DataError(f"{path}: {_missing(column, file.schema_arrow.names)}")
            for batch in file.iter_batches(batch_size=BATCH, columns=list(columns)):
                yield from zip(*(batch.column(column).to_pylist() for column in columns), strict=True)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _missing(column: str, there: Any) -> str:
    return f"has no column '{column}'; there are: {', '.join(map(str, there)) or 'none'}"
