"""A CSV file, line by line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedquilt.base.errors import DataError
from fedquilt.data.formats.packed import text_lines

NumberedRows = Iterator[tuple[int, list[str]]]
"""Values with the number of the line that they end on; empty lines are passed over."""


NO_NAMES = "is empty, or its first line is; the first line must name the columns"
NO_ROWS = "has no rows below its first line"


@contextmanager
def csv_file(path: Path, delimiter: str = ",", strict: bool = False) -> Iterator[tuple[list[str], NumberedRows]]:
    """Open a CSV file in UTF-8, and return the names in its first line, and its other lines; there is at least one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     _ = path.write_text("x,y\\n1,2\\n\\n3,4\\n")
    ...     with csv_file(path) as (header, lines):
    ...         header, list(lines)
    (['x', 'y'], [(2, ['1', '2']), (4, ['3', '4'])])
    """
    try:
        reader = csv.reader(text_lines(path), delimiter=delimiter, strict=strict)
        header = next(reader, [])
        if not any(header):
            raise DataError(f"{path}: {NO_NAMES}")
        yield header, _lines(path, reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is not a CSV file in UTF-8, or cannot be read: {error}") from None


def _lines(path: Path, reader: Any) -> NumberedRows:
    found = False
    for row in reader:
        if row:
            found = True
            yield reader.line_num, row
    if not found:
        raise DataError(f"{path}: {NO_ROWS}")
