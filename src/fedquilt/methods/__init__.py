"""Published methods, and wrappers that change one part of any method: one file each, registered by name.

May import `round`, `simulate`, `algorithm`, `models`, `compute`, `partition`, `data` and `base`.
"""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, _registry.methods, _registry.wrappers)
