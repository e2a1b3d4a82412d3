"""How clients are executed. What of it decides the last bits of a result is in docs/reproducibility.md."""

from fedquilt.engines.inline import inline
from fedquilt.engines.processes import processes, vectorised

__all__ = ["inline", "processes", "vectorised"]
