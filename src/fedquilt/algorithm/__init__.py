"""What a federated method is made of: the kit for people who write methods.

`Algorithm`, `Transform`, `Exchange`, `Loss`, `Penalty`, exact sums, the state of a run, and `parts/` that fill them.

May import `compute`, `partition`, `data` and `base`.
"""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

_namespace(
    __name__,
    _registry.losses,
    _registry.metrics,
    defined={
        "fedquilt.algorithm.algorithm": (
            "Algorithm",
            "Batches",
            "Course",
            "PerClient",
            "Personalise",
            "ServerTraining",
            "add_exchange",
            "claim",
        ),
        "fedquilt.algorithm.updates": ("Cohort", "Fold"),
        "fedquilt.algorithm.exact": ("ExactMean", "WideMean"),
        "fedquilt.algorithm.exchange": (
            "Exchange",
            "First",
            "Gather",
            "InitialFederation",
            "Parting",
            "Trained",
            "Upload",
            "Visit",
        ),
        "fedquilt.algorithm.loss": ("Loss",),
        "fedquilt.algorithm.metric": ("Metric",),
        "fedquilt.algorithm.penalty": ("Penalty", "Seen"),
        "fedquilt.algorithm.transform": ("At", "Transform", "chain", "stateless"),
        "fedquilt.compute.layout": ("State", "Tensors"),
    },
)
