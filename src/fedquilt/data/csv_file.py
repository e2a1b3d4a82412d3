"""A CSV file, line by line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedquilt.errors import DataError

Lines = Iterator[tuple[int, list[str]]]
"""Values with the number of the line that they end on; empty lines are passed over."""


@contextmanager
def csv_file(path: Path, delimiter: str = ",", strict: bool = False) -> Iterator[tuple[list[str], Lines]]:
    """Open a CSV file in UTF-8, and return the names in its first line, and its other lines.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     _ = path.write_text("x,y\\n1,2\\n\\n3,4\\n")
    ...     with csv_file(path) as (header, lines):
    ...         header, list(lines)
    (['x', 'y'], [(2, ['1', '2']), (4, ['3', '4'])])
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=strict)
            header = next(reader, [])
            yield header, ((reader.line_num, row) for row in reader if row)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is no CSV file in UTF-8, or cannot be read: {error}") from None
