"""The svmlight format of the LIBSVM data sets: one line per example, `label index:value index:value …`, indices from 1.

What is not named is 0. Read here and not by scikit-learn, which takes a second to import, and so that a file cannot claim
more rows or columns than its data set has.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import DataError
from fedquilt.data.packed import read_unpacked

Numbers = npt.NDArray[np.float64]

_NUMBER = rb"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_LINE = re.compile(rb"\s*(%b)((?:\s+\d{1,9}:%b)*)\s*" % (_NUMBER, _NUMBER))


def read_svmlight(path: Path, rows: int, columns: int, limit: int = 2**26) -> tuple[Numbers, Numbers]:
    """Read the features, a row per example, and the labels of a file with known numbers of rows and columns.

    The file may be packed with gzip, bzip2 or xz, to at most `limit` bytes of text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "two.svm"
    ...     _ = path.write_text("+1 1:0.5 3:2\\n-1 2:1e-1\\n")
    ...     read_svmlight(path, rows=2, columns=3)
    (array([[0.5, 0. , 2. ],
           [0. , 0.1, 0. ]]), array([ 1., -1.]))
    """
    lines = io.BytesIO(read_unpacked(path, limit))
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if len(numbered) != rows:
        raise DataError(f"{path}: {len(numbered)} examples, expected {rows}")
    x, y = np.zeros((rows, columns)), np.zeros(rows)
    for row, (number, line) in enumerate(numbered):
        parts = _LINE.fullmatch(line)
        if parts is None:
            start = line[:40].decode(errors="replace").rstrip("\n")
            raise DataError(f"{path}: line {number}: expected `label index:value …`, got {start!r}")
        pairs = parts[2].replace(b":", b" ").split()
        indices = np.array(pairs[::2], dtype=np.int64)
        if len(indices) and not (indices.min() >= 1 and indices.max() <= columns):
            wrong = next(int(index) for index in indices if not 1 <= index <= columns)
            raise DataError(f"{path}: line {number}: feature {wrong}, expected 1 to {columns}")
        y[row] = float(parts[1])
        x[row, indices - 1] = np.array(pairs[1::2], dtype=np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError(f"{path}: a number is too large")
    return x, y
