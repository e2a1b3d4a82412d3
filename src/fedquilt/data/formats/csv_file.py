"""A CSV file: line by line, or columns by name, as text and as whole numbers."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import DataError, listed
from fedquilt.data.files import text_lines

NumberedRows = Iterator[tuple[int, list[str]]]
"""Values with the number of the line that they end on; empty lines are passed over."""

TextColumns = dict[str, list[str]]

NO_NAMES = "is empty, or its first line is; the first line must name the columns"
NO_ROWS = "has no rows below its first line"


@contextmanager
def csv_file(path: Path, delimiter: str = ",", strict: bool = False) -> Iterator[tuple[list[str], NumberedRows]]:
    """Open a CSV file in UTF-8, and return the names in its first line, and its other lines; there is at least one."""
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


def read_columns(path: Path, wanted: Sequence[str], optional: Collection[str] = ()) -> TextColumns:
    """Read some columns of a CSV file whose first line names them; those that are optional may be missing."""
    with csv_file(path) as (header, lines):
        indices = _indices(path, header, wanted, optional)
        columns: TextColumns = {name: [] for name in indices}
        for number, row in lines:
            if len(row) < len(header):
                raise DataError(f"{path}: line {number} has {len(row)} values, the first line {len(header)}")
            for name, index in indices.items():
                columns[name].append(row[index])
    return columns


def _indices(path: Path, header: list[str], wanted: Sequence[str], optional: Collection[str]) -> dict[str, int]:
    names = [name.strip() for name in header]
    for name in wanted:
        if name not in names and name not in optional:
            raise DataError(f"{path}: has no column {name!r}; its columns are {listed(names)}")
    return {name: names.index(name) for name in wanted if name in names}


def whole_numbers(path: Path, column: str, values: Sequence[str]) -> npt.NDArray[np.int64]:
    """Read a column of whole numbers from 0.

    >>> whole_numbers(Path("a.csv"), "class", ["3", "0"]).tolist()
    [3, 0]
    """
    try:
        numbers = np.array([int(value) for value in values], dtype=np.int64)
    except (ValueError, OverflowError):
        wrong = next((value for value in values if not value.strip().isdecimal()), values[0])
        raise DataError(f"{path}: column {column!r} must hold integers from 0, got {wrong!r}") from None
    if numbers.min() < 0:
        raise DataError(f"{path}: column {column!r} must hold integers from 0, got {int(numbers.min())}")
    return numbers
