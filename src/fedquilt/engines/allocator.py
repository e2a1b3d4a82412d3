"""Keeps freed memory in a worker, or in a trial of a sweep, instead of giving it back to the system after every step.

A step of a convolutional network frees and takes tens of megabytes. With glibc's defaults the pages go back and forth,
thousands of page faults per step, for a tenth of the time and more. What is kept is bounded by the process's own peak.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> None:
    """Tell glibc's allocator to hold on to freed memory; does nothing where there is another allocator."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 2**30)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_M_TOP_PAD, 64 * 2**20)
