"""How much memory reading data may take, and a check of sizes against it before any of it is taken.

Files say how much is in them, and may lie. What they claim is checked here first: reading may take a quarter of the memory
that is free, or as much as the environment variable FEDQUILT_MEMORY says ("12GB").
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fedquilt.base.errors import DataError

SETTING = "FEDQUILT_MEMORY"
"""The environment variable that sets another limit."""

SHARE = 4
"""Without it, one part in so many of the free memory is the limit."""

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNKNOWN = 8 * 10**9
"""What counts as free where the system does not say."""


def require_memory(what: str, size: int) -> None:
    """Raise a DataError if so many bytes are more than reading data may take.

    >>> require_memory("a table", 10**18)
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: a table would take 1,000,000,000 GB of memory; the limit is ...
    """
    most = allowed()
    if size > most:
        raise DataError(f"{what} would take {in_words(size)} of memory; {the_limit(most)}")


def the_limit(most: int, of: str = "") -> str:
    """Say what a limit is, where it comes from and how to raise it.

    >>> the_limit(2 * 10**9, "a line")
    'the limit is 2 GB a line, ... FEDQUILT_MEMORY ...'
    """
    chosen = os.environ.get(SETTING)
    basis = f"from {SETTING}={chosen}" if chosen else f"a quarter of the free memory, {in_words(allowed())}"
    return f"the limit is {in_words(most)}{of and f' {of}'}, {basis}; set {SETTING} to raise it, as in {SETTING}=64GB"


def allowed() -> int:
    """Return how many bytes reading data may take."""
    chosen = os.environ.get(SETTING)
    if not chosen:
        return free() // SHARE
    number = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?B?)\s*", chosen.upper())
    if number is None or number[2] not in _UNITS:
        raise DataError(f"{SETTING}: must be a size such as 500MB or 12GB, got {chosen!r:.40}")
    return int(float(number[1]) * _UNITS[number[2]])


def free() -> int:
    """Return the free bytes of this machine, or of the container that this process runs in, if that has fewer."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        machine = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        machine = _half_of_all()
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):  # no container, or one without a limit
        return machine
    return min(machine, max(limit - used, 0))


def in_words(size: int) -> str:
    """Write a number of bytes for people.

    >>> in_words(999), in_words(1_500_000), in_words(12 * 10**9), in_words(3 * 10**12)
    ('999 bytes', '1.5 MB', '12 GB', '3,000 GB')
    """
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:,.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} bytes"


def _half_of_all() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):  # Windows, or a system that does not say
        return _UNKNOWN
