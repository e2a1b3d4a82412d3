"""Data sets, by name. Each is a file in `data/sets`."""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, _registry.datasets, defined={"fedquilt.data.sets.arrays": ("arrays",)})
