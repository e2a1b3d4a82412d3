"""Models: one file each, registered by name.

May import `compute`, `partition`, `data` and `base`.
"""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, _registry.models, defined={"fedquilt.models.weights": ("load_weights",)})
