"""Where clients run, and how: engines, the scheduler that they share, and the transports that carry tasks to workers.

A new engine is a transport (`transport.py`). What of an engine decides the last bits of a result is in
docs/reproducibility.md. Imports everything below but nothing of analysis, experiments or the command line.
"""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, _registry.engines)
