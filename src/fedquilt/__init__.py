"""fedquilt: federated learning for data that differs from owner to owner.

Bring a module, arrays, a partition and a method to `train`; or run a spec file with `run`.
"""

from fedquilt.data import Data, arrays, cifar10, digits, mnist, mnist_5k
from fedquilt.engines import inline, processes
from fedquilt.errors import FedquiltError
from fedquilt.experiment.report import report
from fedquilt.experiment.run import Run, resume, run
from fedquilt.experiment.spec import load_spec
from fedquilt.experiment.summary import summary
from fedquilt.experiment.sweep import sweep
from fedquilt.experiment.training import Result, train
from fedquilt.methods import centralised, fed_avg, fed_avg_m, fed_sgd
from fedquilt.metrics.curves import History, rounds_to
from fedquilt.partition import Partition, dirichlet, iid, shards

__version__ = "0.1.0"

__all__ = [
    "Data",
    "FedquiltError",
    "History",
    "Partition",
    "Result",
    "Run",
    "arrays",
    "centralised",
    "cifar10",
    "digits",
    "dirichlet",
    "fed_avg",
    "fed_avg_m",
    "fed_sgd",
    "iid",
    "inline",
    "load_spec",
    "mnist",
    "mnist_5k",
    "processes",
    "report",
    "resume",
    "rounds_to",
    "run",
    "shards",
    "summary",
    "sweep",
    "train",
]
