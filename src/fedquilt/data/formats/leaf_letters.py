"""Letters as LEAF numbers them, and its task on Shakespeare: the letter that comes after 80.

Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings". The 80 letters are those of the benchmark's published code
(`ALL_LETTERS` in its models/utils/language_utils.py), in its order.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.errors import DataError
from fedquilt.data.data import IGNORED, Data, Split
from fedquilt.data.unrolled import to_indices

LETTERS = "\n !\"&'(),-." + digits + ":;>?" + ascii_uppercase + "[]" + ascii_lowercase + "}"

Numbers = npt.NDArray[np.int8]

_UNKNOWN = -1
_TABLE = np.full(256, _UNKNOWN, dtype=np.int8)
_TABLE[np.frombuffer(LETTERS.encode(), dtype=np.uint8)] = np.arange(len(LETTERS))


def letters(source: str, texts: list[str], length: int | None = None) -> Numbers:
    """Number the letters of texts of one length, a row each.

    >>> letters("a.json", ["To be", "or no"])[:, :3].tolist()
    [[44, 67, 1], [67, 70, 1]]
    """
    length = len(texts[0]) if length is None else length
    other = next((text for text in texts if len(text) != length), None)
    if other is not None or not length:
        raise DataError(
            f"{source}: a text of {len(other or '')} letters, expected {length or 'some'}: {other or ''!r:.40}"
        )
    together = "".join(texts)
    numbers = _TABLE[np.frombuffer(together.encode("latin-1", errors="replace"), dtype=np.uint8)]
    strange = [together[index] for index in np.flatnonzero(numbers == _UNKNOWN)]
    strange += [letter for letter in set(together) if letter > "\xff"]  # encoded as question marks
    if strange:
        raise DataError(f"{source}: {strange[0]!r} is not one of the {len(LETTERS)} characters of LEAF's alphabet")
    return numbers.reshape(len(texts), length)


def next_letter(data: Data) -> Data:
    """Make a data set of sequences, of which the last position alone is predicted, of one whose label is that letter."""
    train, test = (_sequences(split) for split in (data.train, data.test))
    return Data(data.name, train, test, len(LETTERS), prepare=to_indices)


def _sequences(split: Split) -> Split:
    y = torch.full(split.x.shape, IGNORED, dtype=torch.int8)
    y[:, -1] = split.y
    return Split(split.x, y, split.ids)
