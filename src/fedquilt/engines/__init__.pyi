# Written by tools/stubs.py: do not edit.

from fedquilt.engines.default import auto
from fedquilt.engines.flower.engine import flower
from fedquilt.engines.inline import inline
from fedquilt.engines.processes import processes, vectorised
from fedquilt.engines.ray import ray

__all__ = [
    "auto",
    "flower",
    "inline",
    "processes",
    "ray",
    "vectorised",
]
