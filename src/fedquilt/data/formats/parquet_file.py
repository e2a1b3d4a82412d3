"""Parquet files, after a look at what they claim: a few kilobytes can stand for any number of equal rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedquilt.base.errors import DataError, MissingExtraError
from fedquilt.base.memory import require_memory
from fedquilt.data.files import require_regular
from fedquilt.data.formats.packaged import installed


@contextmanager
def parquet_file(path: Path, texts: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file; what goes wrong in reading is a DataError.

    Of the columns `texts`, those that hold text are read as numbers and a dictionary: equal values are in memory once.
    """
    if not installed("pyarrow"):
        raise MissingExtraError(f"{path}: reading Parquet", "tables")
    import pyarrow
    import pyarrow.parquet

    try:
        require_regular(path)
        about = pyarrow.parquet.read_metadata(path)
        known = {about.schema.column(index).path for index in range(about.num_columns)}
        for number in range(about.num_row_groups):
            require_memory(f"{path}: part {number + 1}", about.row_group(number).total_byte_size)
        shared = [name for name in texts if name in known]
        with pyarrow.parquet.ParquetFile(path, metadata=about, read_dictionary=shared) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def text_size(file: Any, columns: Sequence[str]) -> int:
    """Return how many bytes some columns have, unpacked, as the file says."""
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
