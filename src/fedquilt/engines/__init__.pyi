# Written by tools/stubs.py: do not edit.

from fedquilt.engines.default import auto
from fedquilt.engines.inline import inline
from fedquilt.engines.processes import processes, vectorised

__all__ = [
    "auto",
    "inline",
    "processes",
    "vectorised",
]
