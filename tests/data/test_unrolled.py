import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.data.data import IGNORED
from fedquilt.data.unrolled import unrolled

SEQUENCES = st.lists(st.lists(st.integers(2, 9), max_size=12), min_size=1, max_size=8)


def flat(sequences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    symbols = np.array([symbol for sequence in sequences for symbol in sequence], dtype=np.int64)
    return symbols, np.array([len(sequence) for sequence in sequences], dtype=np.int64)


@given(SEQUENCES, st.integers(1, 6), st.sampled_from([None, 1]))
def test_every_symbol_is_predicted_once_from_the_one_before(
    sequences: list[list[int]], length: int, end: int | None
) -> None:
    x, y, of = unrolled(*flat(sequences), length=length, vocabulary=10, begin=0, end=end)
    assert x.shape == y.shape == (len(of), length)
    for number, sequence in enumerate(sequences):
        targets = sequence if end is None else [*sequence, end]
        inputs = [0, *targets[:-1]] if targets else []
        mine = torch.from_numpy(of == number)
        counted = y[mine].flatten() != IGNORED
        assert y[mine].flatten()[counted].tolist() == targets
        assert x[mine].flatten()[counted].tolist() == inputs
        assert int(mine.sum()) == -(-len(targets) // length)
        assert (x[mine].flatten()[~counted] == 0).all()


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = [[2] * size for size in (3, 0, 7, 1, 0, 4)]
    whole = unrolled(*flat(sequences), length=3, vocabulary=10, begin=0)
    monkeypatch.setattr("fedquilt.data.unrolled.BLOCK", 2)
    cut = unrolled(*flat(sequences), length=3, vocabulary=10, begin=0)
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(whole, cut, strict=True))


@pytest.mark.parametrize(("vocabulary", "dtype"), [(2**15, torch.int16), (2**15 + 1, torch.int32)])
def test_symbols_take_as_few_bytes_as_they_can(vocabulary: int, dtype: torch.dtype) -> None:
    x, y, _ = unrolled(np.array([vocabulary - 1]), np.array([1]), length=2, vocabulary=vocabulary, begin=0)
    assert x.dtype == y.dtype == dtype
    assert y.tolist() == [[vocabulary - 1, IGNORED]]
