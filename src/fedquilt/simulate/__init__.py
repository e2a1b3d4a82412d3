"""Who shows up in a simulated round, and how faithfully: availability, dropout, stragglers, corruption.

A simulation is no part of an algorithm: the same algorithm goes to real sites without it. A spec has it in `[[simulate]]`.
"""

from fedquilt.simulate.availability import availability
from fedquilt.simulate.corrupt import corrupt
from fedquilt.simulate.dropout import dropout
from fedquilt.simulate.simulation import Simulation
from fedquilt.simulate.stragglers import stragglers

__all__ = ["Simulation", "availability", "corrupt", "dropout", "stragglers"]
