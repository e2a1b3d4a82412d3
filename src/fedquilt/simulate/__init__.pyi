# Written by tools/stubs.py: do not edit.

from fedquilt.simulate.availability import availability
from fedquilt.simulate.corrupt import corrupt
from fedquilt.simulate.dropout import dropout
from fedquilt.simulate.simulation import Simulation
from fedquilt.simulate.stragglers import stragglers

__all__ = [
    "Simulation",
    "availability",
    "corrupt",
    "dropout",
    "stragglers",
]
