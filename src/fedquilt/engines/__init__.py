"""Where clients run, and how: engines, the scheduler that they share, and the transports that carry tasks to workers.

A new engine is a transport (`transport.py`). What of an engine decides the last bits of a result is in
docs/reproducibility.md. Imports everything below but nothing of analysis, experiments or the command line.
"""

from fedquilt.engines.inline import inline
from fedquilt.engines.processes import processes, vectorised

__all__ = ["inline", "processes", "vectorised"]
