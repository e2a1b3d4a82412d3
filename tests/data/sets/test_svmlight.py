import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from fedquilt.base.errors import DataError
from fedquilt.data.sets.libsvm import read_svmlight

TEXT = b"+1 1:0.5 3:2 \n-1 2:1e-1\n\n3\t1:-.25 3:1.\r\n2"
X = [[0.5, 0, 2], [0, 0.1, 0], [-0.25, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_reads_packed_and_plain(tmp_path: Path, pack: type[bytes]) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(TEXT))
    x, y = read_svmlight(path, rows=4, columns=3)
    assert x.tolist() == X
    assert y.tolist() == [1, -1, 3, 2]


@given(
    st.lists(
        st.tuples(
            st.integers(-3, 3),
            st.dictionaries(st.integers(1, 6), st.floats(-1e6, 1e6), max_size=6),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_agrees_with_scikit_learn(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, dict[int, float]]]
) -> None:
    path = tmp_path_factory.mktemp("svm") / "file"
    path.write_text("".join(f"{y} {' '.join(f'{i}:{x[i]!r}' for i in sorted(x))}\n" for y, x in rows))
    x, y = read_svmlight(path, rows=len(rows), columns=6)
    theirs, labels = load_svmlight_file(str(path), n_features=6)
    assert np.array_equal(x, theirs.toarray())
    assert np.array_equal(y, labels)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "0 examples, expected 2"),
        (b"1 1:1\n2 1:1\n1 1:1\n", "3 examples, expected 2"),
        (b"1 1:1\n2 1:one\n", r"line 2: expected `label index:value …`, got '2 1:one'"),
        (b"1 1:1\ncat 1:1\n", "line 2: expected"),
        (b"1 1:1\n2 1:nan\n", "line 2: expected"),
        (b"1 1:1\n2 1 2\n", "line 2: expected"),
        (b"1 1:1\n2 4:1\n", "line 2: feature 4, expected 1 to 3"),
        (b"1 0:1\n2 1:1\n", "line 1: feature 0, expected 1 to 3"),
        (b"1 1:1\n2 999999999:1\n", "line 2: feature 999999999, expected 1 to 3"),
        (b"1 1:1\n2 1:1e999\n", "line 2: a number is too large"),
        (b"\x1f\x8bnonsense", "cannot be read"),
        (lzma.compress(TEXT)[:-8], "cannot be read"),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(text)
    with pytest.raises(DataError, match=message):
        read_svmlight(path, rows=2, columns=3)


def test_a_small_file_cannot_unpack_to_much(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(lzma.compress(b"\n" * 10**7))
    with pytest.raises(DataError, match="more than 1,000 bytes when decompressed"):
        read_svmlight(path, rows=2, columns=3, limit=1000)
