# Written by tools/stubs.py: do not edit.

from fedquilt.engines.inline import inline
from fedquilt.engines.processes import processes, vectorised
from fedquilt.engines.ray import ray

__all__ = [
    "inline",
    "processes",
    "ray",
    "vectorised",
]
