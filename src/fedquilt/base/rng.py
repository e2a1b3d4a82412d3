"""Random generators keyed by what they are for, so that no draw depends on what was drawn before or where.

The key is hashed to 128 bits and given to Philox. torch's own generator takes only the low 32 bits of a seed, and hashed
keys would collide there.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.random.bit_generator import ISeedSequence


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Return the generator that belongs to a seed, a purpose and a key such as (round, client, slot).

    >>> a, b = generator(1, "select", 7), generator(1, "select", 7)
    >>> bool(a.integers(2**60) == b.integers(2**60))
    True
    """
    return np.random.Generator(np.random.Philox(_Key(_hashed(seed, purpose, key))))  # type: ignore[arg-type]


def brief_generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Return a generator with the same draws as `generator`, for use until the next call of this function.

    A thread has one such generator, which is set to a key's beginning. That takes less time than making one, which
    counts where thousands of clients draw a few numbers each.

    >>> bool(brief_generator(1, "select", 7).integers(2**60) == generator(1, "select", 7).integers(2**60))
    True
    """
    _BRIEF.state["state"]["key"] = np.frombuffer(_hashed(seed, purpose, key), dtype=np.uint64)
    _BRIEF.philox.state = _BRIEF.state
    return _BRIEF.generator


def _hashed(seed: int, purpose: str, key: tuple[int, ...]) -> bytes:
    text = f"{seed}/{purpose}" + "".join([f"/{int(part)}" for part in key])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class _Key(ISeedSequence):
    """A key for Philox. `Philox(key=…)` gives the same draws, after asking the system for entropy that it does not use."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> npt.NDArray[Any]:
        return np.frombuffer(self._key, dtype=dtype, count=n_words)


class _Brief(threading.local):
    """A thread's generator for brief use, and the state that it has at the beginning of a key's draws."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(_Key(bytes(16)))  # type: ignore[arg-type]
        self.generator = np.random.Generator(self.philox)
        self.state: Any = self.philox.state


_BRIEF = _Brief()


@contextmanager
def torch_seeded(seed: int, purpose: str, group: int = 0, slot: int = 0, device: str = "cpu") -> Iterator[None]:
    """Seed torch's global generator, for code that reads it (dropout, initialisation), and restore it afterwards.

    torch uses 32 bits of a seed. Those of one group (a round) are consecutive, so that no two slots of it share a stream.
    Another device has another generator, which is seeded alike.

    >>> with torch_seeded(1, "dropout", 3, 0):
    ...     a = torch.rand(2)
    >>> with torch_seeded(1, "dropout", 3, 0):
    ...     bool((a == torch.rand(2)).all())
    True
    """
    chosen = (int(generator(seed, purpose, group).integers(2**32)) + slot) % 2**32
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(chosen)
    other = torch.get_device_module(device) if device in ("cuda", "mps") else None
    if other is not None:
        other_state = other.get_rng_state()
        other.manual_seed(chosen)
    try:
        yield
    finally:
        torch.default_generator.set_state(before)
        if other is not None:
            other.set_rng_state(other_state)
