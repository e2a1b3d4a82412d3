"""Chosen columns of JSON Lines and Parquet files, read row by row: a file never is in memory as a whole.

JSON Lines is text with one object per line (`{"author": "a", "text": "Hello"}`), packed with gzip, bzip2 or xz or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedquilt.base.errors import DataError, listed
from fedquilt.base.memory import allowed
from fedquilt.data.formats.json_file import parse_json
from fedquilt.data.formats.parquet_file import parquet_file, text_size
from fedquilt.data.packed import LINE_SHARE, lines

LINES = (".jsonl", ".ndjson")
ENDINGS = (".parquet", *LINES, *(f"{kind}{packed}" for kind in LINES for packed in (".gz", ".bz2", ".xz")))
BATCH = 2**13
"""Rows of a Parquet file read at a time."""


def files(path: Path) -> list[Path]:
    """Return the file, or those of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS))
    if not found:
        raise DataError(f"{path}: has no files that end in {', '.join(ENDINGS)}")
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
    for number, line in enumerate(lines(path), start=1):
        if not line.isspace():
            yield _of_line(f"{path}, line {number}", line, columns)


def _of_line(where: str, line: bytes, columns: Sequence[str]) -> tuple[Any, ...]:
    row = parse_json(where, line)
    if not isinstance(row, dict):
        raise DataError(f"{where}: must be a JSON object with the keys {', '.join(columns)}")
    for column in columns:
        if column not in row:
            raise DataError(f"{where}: {_missing(column, row)}")
    return tuple(row[column] for column in columns)


def _of_parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    with parquet_file(path, columns) as file:
        for column in columns:
            if column not in file.schema_arrow.names:
                raise DataError(f"{path}: {_missing(column, file.schema_arrow.names)}")
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


def _missing(column: str, present: Any) -> str:
    return f"has no column '{column}'; there are: {listed([str(name) for name in present]) or 'none'}"
