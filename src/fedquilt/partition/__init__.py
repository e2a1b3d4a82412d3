"""Partitions: who holds which example. One file each, registered by name.

May import `data` and `base`.
"""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, _registry.partitions, defined={"fedquilt.partition.partition": ("Partition",)})
