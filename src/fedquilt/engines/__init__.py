"""How clients are executed. What of it decides the last bits of a result is in docs/reproducibility.md."""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, _registry.engines)
