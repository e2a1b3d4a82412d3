"""fedquilt: federated learning for data that differs from owner to owner.

Bring a module, arrays, a partition and a method to `train`; or run a spec file with `run`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedquilt.data import (
        Data,
        Split,
        arrays,
        cifar10,
        digits,
        image_folder,
        inaturalist,
        landmarks,
        mnist,
        mnist_5k,
    )
    from fedquilt.engines import inline, processes, vectorised
    from fedquilt.errors import FedquiltError
    from fedquilt.experiment.report import report
    from fedquilt.experiment.run import Run, resume, run
    from fedquilt.experiment.spec import load_spec
    from fedquilt.experiment.summary import summary
    from fedquilt.experiment.sweep import sweep
    from fedquilt.experiment.training import Result, train
    from fedquilt.methods import (
        availability,
        centralised,
        corrupt,
        ditto,
        dropout,
        fed_adagrad,
        fed_adam,
        fed_avg,
        fed_avg_m,
        fed_avg_r,
        fed_dyn,
        fed_ir,
        fed_nova,
        fed_prox,
        fed_sgd,
        fed_vc,
        fed_yogi,
        fine_tuned,
        fl_hc,
        geometric_median,
        gradient_noise,
        krum,
        local_only,
        median,
        norm_bound,
        one_shot,
        own_test,
        projected,
        scaffold,
        server_training,
        sign_agreement,
        stragglers,
        trimmed_mean,
    )
    from fedquilt.metrics.curves import History, rounds_to
    from fedquilt.partition import Partition, dirichlet, geo, iid, shards

__version__ = "0.1.0"

_HOMES = {
    "fedquilt.data": (
        "Data",
        "Split",
        "arrays",
        "cifar10",
        "digits",
        "image_folder",
        "inaturalist",
        "landmarks",
        "mnist",
        "mnist_5k",
    ),
    "fedquilt.engines": (
        "inline",
        "processes",
        "vectorised",
    ),
    "fedquilt.errors": ("FedquiltError",),
    "fedquilt.experiment.report": ("report",),
    "fedquilt.experiment.run": (
        "Run",
        "resume",
        "run",
    ),
    "fedquilt.experiment.spec": ("load_spec",),
    "fedquilt.experiment.summary": ("summary",),
    "fedquilt.experiment.sweep": ("sweep",),
    "fedquilt.experiment.training": (
        "Result",
        "train",
    ),
    "fedquilt.methods": (
        "availability",
        "centralised",
        "corrupt",
        "ditto",
        "dropout",
        "fed_adagrad",
        "fed_adam",
        "fed_avg",
        "fed_avg_m",
        "fed_avg_r",
        "fed_dyn",
        "fed_ir",
        "fed_nova",
        "fed_prox",
        "fed_sgd",
        "fed_vc",
        "fed_yogi",
        "fine_tuned",
        "fl_hc",
        "geometric_median",
        "gradient_noise",
        "krum",
        "local_only",
        "median",
        "norm_bound",
        "one_shot",
        "own_test",
        "projected",
        "scaffold",
        "server_training",
        "sign_agreement",
        "stragglers",
        "trimmed_mean",
    ),
    "fedquilt.metrics.curves": (
        "History",
        "rounds_to",
    ),
    "fedquilt.partition": (
        "Partition",
        "dirichlet",
        "geo",
        "iid",
        "shards",
    ),
}

__all__ = [
    "Data",
    "FedquiltError",
    "History",
    "Partition",
    "Result",
    "Run",
    "Split",
    "arrays",
    "availability",
    "centralised",
    "cifar10",
    "corrupt",
    "digits",
    "dirichlet",
    "ditto",
    "dropout",
    "fed_adagrad",
    "fed_adam",
    "fed_avg",
    "fed_avg_m",
    "fed_avg_r",
    "fed_dyn",
    "fed_ir",
    "fed_nova",
    "fed_prox",
    "fed_sgd",
    "fed_vc",
    "fed_yogi",
    "fine_tuned",
    "fl_hc",
    "geo",
    "geometric_median",
    "gradient_noise",
    "iid",
    "image_folder",
    "inaturalist",
    "inline",
    "krum",
    "landmarks",
    "load_spec",
    "local_only",
    "median",
    "mnist",
    "mnist_5k",
    "norm_bound",
    "one_shot",
    "own_test",
    "processes",
    "projected",
    "report",
    "resume",
    "rounds_to",
    "run",
    "scaffold",
    "server_training",
    "shards",
    "sign_agreement",
    "stragglers",
    "summary",
    "sweep",
    "train",
    "trimmed_mean",
    "vectorised",
]


def __getattr__(name: str) -> Any:
    # Names are imported when they are first used: the command line then answers without waiting for PyTorch.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'fedquilt' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
