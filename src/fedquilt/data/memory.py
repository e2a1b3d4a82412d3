"""Refuses what a machine's memory cannot hold, before any of it is taken."""

from __future__ import annotations

import os

from fedquilt.errors import DataError


def require_memory(what: str, size: int) -> None:
    """Raise a DataError if so many bytes are more than the machine has.

    >>> require_memory("a table", 10**18)
    Traceback (most recent call last):
    fedquilt.errors.DataError: a table would take 1,000,000,000 GB of memory; this machine has ...
    """
    if not hasattr(os, "sysconf"):  # Windows does not say
        return
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > there:
        raise DataError(f"{what} would take {size / 1e9:,.0f} GB of memory; this machine has {there / 1e9:,.0f} GB")
