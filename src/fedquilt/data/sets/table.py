"""Your own table: a CSV or Parquet file with one row per example."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedquilt.base.arguments import Seed
from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.data.columns import Classes, Columns, Roles, Values, data_of_columns
from fedquilt.data.data import Data
from fedquilt.data.fetch.folders import own_file
from fedquilt.data.formats.csv_file import NumberedRows, csv_file
from fedquilt.data.formats.rows import parquet_file, text_size
from fedquilt.data.labels import TestFraction

_VALUES = 1_000_000
"""Values of a CSV file that are turned into numbers at once: as many rows as have so many."""

_LONGEST = 1_000
"""Characters of a label's or client's name: in an array of text, all names take the room of the longest."""


@datasets.register
def table(
    path: Path,
    label: str,
    features: tuple[str, ...] | None = None,
    client: str | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    test: Path | None = None,
    test_fraction: TestFraction = 0.2,
    classes: Classes | None = None,
    scale: bool = False,
    seed: Seed = 0,
) -> Data:
    """Your own table: a CSV or Parquet file with one row per example.

    `label`, `client`, `latitude` and `longitude` are names of columns; `features` are those named, or all others. Labels
    are whole numbers from 0, or text, which is numbered in its order; with `classes=0` they are numbers, for a loss such
    as "mean_squared_error". `test` is a second file, with the same columns; without it `test_fraction` of every client's
    rows are held out or, without `client`, of every class's; `seed` decides which. `scale` brings every feature to
    [−1, 1] by its range over the training part. A file that is not found as named is looked for beside the spec
    and in the data folders. Parquet needs the extra `tables`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pets.csv"
    ...     _ = path.write_text("kilos,age,pet,owner\\n4.5,3,cat,mia\\n20,5,dog,ben\\n5,1,cat,ben\\n30,2,dog,mia\\n")
    ...     data = table(path, label="pet", client="owner", test_fraction=0.5)
    >>> data, data.train.ids.tolist()
    (Data(pets: 2 to train, 2 to test, 2 classes), [...])
    """
    roles = Roles(label, features, client, latitude, longitude)
    train = read_table_file(own_file(path), roles)
    tested = None if test is None else read_table_file(own_file(test), roles)
    return data_of_columns(path.stem, train, tested, roles, classes, test_fraction, seed, scale)


def read_table_file(path: Path, roles: Roles) -> Columns:
    """Read the columns that are needed of a CSV or Parquet file."""
    if path.suffix == ".parquet":
        return _read_parquet(path, roles)
    if path.suffix in (".csv", ".tsv"):
        return _read_csv(path, roles, delimiter="\t" if path.suffix == ".tsv" else ",")
    raise DataError(f"{path}: must be a file that ends in .csv, .tsv or .parquet")


def _read_csv(path: Path, roles: Roles, delimiter: str) -> Columns:
    with csv_file(path, delimiter, strict=True) as (header, lines):
        index_of = {name: index for index, name in enumerate(header)}
        if len(index_of) < len(header):
            raise DataError(f"{path}: two columns have the same name")
        inputs = roles.inputs(str(path), header)
        numbers = [index_of[name] for name in (*inputs, *roles.coordinates)]
        texts = [index_of[name] for name in roles.names]
        blocks: list[npt.NDArray[np.float64]] = []
        names: list[list[npt.NDArray[np.str_]]] = [[] for _ in texts]
        ends: list[npt.NDArray[np.int64]] = []
        rows = 0
        for block in _blocks(path, lines, len(header)):
            rows += len(block)
            require_memory(f"{path}: {rows:,} rows of {len(header):,} columns", rows * _row_size(len(inputs), roles))
            ends.append(np.array([line for line, _ in block], dtype=np.int64))
            blocks.append(_numbers(path, block, numbers, header))
            for held, index in zip(names, texts, strict=True):
                held.append(_texts(path, block, index, header[index]))
    width = sum(max(block.itemsize for block in held) for held in names)
    require_memory(f"{path}: {rows:,} rows, with the longest of their names in each", 2 * rows * width)
    values = np.concatenate(blocks)
    coordinates = values[:, len(inputs) :] if roles.coordinates else None
    columns = {name: np.concatenate(held) for name, held in zip(roles.names, names, strict=True)}
    return _checked(Columns(str(path), values[:, : len(inputs)], columns, coordinates, np.concatenate(ends)), roles)


def _blocks(path: Path, lines: NumberedRows, columns: int) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield rows with their line numbers, many at a time."""
    block: list[tuple[int, list[str]]] = []
    for line, row in lines:
        if len(row) != columns:
            raise DataError(f"{path}: line {line}: {len(row)} values, but the first line names {columns}")
        block.append((line, row))
        if len(block) * columns >= _VALUES:
            yield block
            block = []
    if block:
        yield block


def _texts(path: Path, block: list[tuple[int, list[str]]], index: int, name: str) -> npt.NDArray[np.str_]:
    for line, row in block:
        if len(row[index]) > _LONGEST:
            raise DataError(f"{path}: line {line}, column '{name}': {_too_long(row[index])}")
    return np.array([row[index] for _, row in block], dtype=np.str_)


def _too_long(text: str | bytes) -> str:
    return f"a name of {len(text):,} characters; {_LONGEST:,} are allowed"


def _numbers(
    path: Path, block: list[tuple[int, list[str]]], indices: list[int], header: list[str]
) -> npt.NDArray[np.float64]:
    try:
        return np.array([[row[index] for index in indices] for _, row in block], dtype=np.float64)
    except ValueError:
        for line, row in block:
            for index in indices:
                _number(path, line, header[index], row[index])
        raise


def _number(path: Path, line: int, name: str, text: str) -> None:
    try:
        float(text)
    except ValueError:
        what = f"{text!r} is not a number" if text else "is empty"
        raise DataError(f"{path}: line {line}, column '{name}': {what}") from None


def _read_parquet(path: Path, roles: Roles) -> Columns:
    with parquet_file(path, roles.names) as file:
        inputs = roles.inputs(str(path), file.schema_arrow.names)
        wanted = [*inputs, *roles.coordinates, *roles.names]
        rows = file.metadata.num_rows
        size = rows * _row_size(len(inputs), roles)
        require_memory(f"{path}: {rows:,} rows of {len(wanted)} columns", size + text_size(file, wanted))
        read = file.read(columns=wanted)
        numbers = {name: _column(path, read, name, numeric=True) for name in (*inputs, *roles.coordinates)}
        columns = {name: _column(path, read, name, numeric=False) for name in roles.names}
    x = np.column_stack([numbers[name] for name in inputs])
    coordinates = np.column_stack([numbers[name] for name in roles.coordinates]) if roles.coordinates else None
    return _checked(Columns(str(path), x, columns, coordinates), roles)


def _column(path: Path, read: Any, name: str, numeric: bool) -> Values:
    column = read.column(name)
    if column.null_count:
        row = column.is_null().to_pylist().index(True) + 1
        raise DataError(f"{path}: row {row}, column '{name}': is empty")
    values = _values(column)
    for row, value in enumerate(values if values.dtype.kind == "O" and not numeric else (), start=1):
        if isinstance(value, str | bytes) and len(value) > _LONGEST:
            raise DataError(f"{path}: row {row}, column '{name}': {_too_long(value)}")
    if numeric and values.dtype.kind not in "biuf":
        raise DataError(f"{path}: column '{name}': holds {column.type}, not numbers")
    return values.astype(np.float64) if numeric else values


def _values(column: Any) -> Values:
    """Return a column as an array; the values of a dictionary are shared, not copied for every row."""
    chunks = column.chunks
    if not chunks or not hasattr(chunks[0], "dictionary"):
        return np.asarray(column.to_numpy())
    known = [np.asarray(chunk.dictionary.to_numpy(zero_copy_only=False)) for chunk in chunks]
    return np.concatenate(
        [values[chunk.indices.to_numpy(zero_copy_only=False)] for values, chunk in zip(known, chunks, strict=True)]
    )


def _row_size(inputs: int, roles: Roles) -> int:
    """Return how many bytes of memory a row takes while a table is read."""
    return 36 * (inputs + len(roles.coordinates)) + 130 * len(roles.names)


def _checked(columns: Columns, roles: Roles) -> Columns:
    """Refuse coordinates that are not on Earth."""
    for index, most in enumerate((90, 180) if columns.coordinates is not None else ()):
        assert columns.coordinates is not None
        wrong = np.flatnonzero(~(np.abs(columns.coordinates[:, index]) <= most))
        if len(wrong):
            found = columns.coordinates[wrong[0], index]
            raise DataError(
                f"{columns.at(wrong[0])}, column '{roles.coordinates[index]}': "
                f"{found} is not between −{most} and {most} degrees"
            )
    return columns
