"""Who shows up in a simulated round, and how faithfully: availability, dropout, stragglers, corruption.

A simulation is no part of an algorithm: the same algorithm goes to real sites without it. A spec has it in `[[simulate]]`.

May import `algorithm`, `models`, `compute`, `partition`, `data` and `base`. Algorithms and methods know nothing of it.
"""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, _registry.simulations, defined={"fedquilt.simulate.simulation": ("Simulation",)})
