"""How clients are executed. Every engine gives the same bits."""

from fedquilt.engines.inline import inline
from fedquilt.engines.processes import processes, vectorised

__all__ = ["inline", "processes", "vectorised"]
