"""fedquilt: federated learning for data that differs from owner to owner.

Bring a module, arrays, a partition and a method to `train`; or run a spec file with `run`.

Every registered method, wrapper, simulation, data set, partition and engine is here by its name. Models are in
`fedquilt.models`, and what methods are made of is in `fedquilt.algorithm`.
"""

from fedquilt.base import registry as _registry
from fedquilt.base.namespace import namespace as _namespace

__version__ = "0.1.0"

_namespace(
    __name__,
    _registry.methods,
    _registry.wrappers,
    _registry.simulations,
    _registry.datasets,
    _registry.partitions,
    _registry.engines,
    defined={
        "fedquilt.analysis.curves": ("History", "rounds_to"),
        "fedquilt.base.errors": ("FedquiltError",),
        "fedquilt.data.data": ("Data", "Split"),
        "fedquilt.data.sets.arrays": ("arrays",),
        "fedquilt.experiment.design.experiment": ("Experiment", "experiment"),
        "fedquilt.experiment.evaluate": ("evaluate",),
        "fedquilt.experiment.export": ("export",),
        "fedquilt.experiment.imports": ("no_import",),
        "fedquilt.experiment.population": ("Inspection", "inspect_partition"),
        "fedquilt.experiment.report": ("report",),
        "fedquilt.experiment.result": ("Result",),
        "fedquilt.experiment.run": ("Run", "resume", "run"),
        "fedquilt.experiment.spec": ("load_spec",),
        "fedquilt.experiment.summary": ("summary",),
        "fedquilt.experiment.sweeping.sweep": ("SweepResult", "sweep"),
        "fedquilt.experiment.training": ("train",),
        "fedquilt.experiment.watching": ("AboutRun", "Watcher"),
        "fedquilt.models.weights": ("load_weights",),
        "fedquilt.partition.partition": ("Partition",),
        "fedquilt.simulate.simulation": ("Simulation",),
    },
    within=("algorithm", "datasets", "engines", "methods", "models", "partition", "simulate"),
)
