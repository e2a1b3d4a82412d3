# Written by tools/stubs.py: do not edit.

from fedquilt.engines.default import auto
from fedquilt.engines.flower.engine import flower
from fedquilt.engines.inline import inline
from fedquilt.engines.processes import processes, vectorised

__all__ = [
    "auto",
    "flower",
    "inline",
    "processes",
    "vectorised",
]
