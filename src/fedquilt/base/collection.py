"""Python's collector of cyclic garbage, out of the way while modules are imported.

PyTorch has hundreds of thousands of objects. While more are imported the collector walks through all of them again and
again, for a tenth of a second and more, and finds next to nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collect no cyclic garbage meanwhile.

    >>> with paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
