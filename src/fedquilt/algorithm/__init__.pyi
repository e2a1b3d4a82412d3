# Written by tools/stubs.py: do not edit.

from fedquilt.algorithm.algorithm import (
    Algorithm,
    Batches,
    Course,
    PerClient,
    Personalise,
    ServerTraining,
    add_exchange,
    claim,
)
from fedquilt.algorithm.cohort import Cohort, Fold
from fedquilt.algorithm.exact import ExactMean, WideMean
from fedquilt.algorithm.exchange import Exchange, First, Gather, InitialFederation, Parting, Trained, Upload, Visit
from fedquilt.algorithm.loss import Loss
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.parts.losses.cross_entropy import cross_entropy
from fedquilt.algorithm.parts.losses.mean_squared_error import mean_squared_error
from fedquilt.algorithm.parts.metrics.accuracy import accuracy
from fedquilt.algorithm.parts.metrics.error import error
from fedquilt.algorithm.parts.metrics.perplexity import perplexity
from fedquilt.algorithm.parts.metrics.top5 import top5
from fedquilt.algorithm.penalty import Penalty, Seen
from fedquilt.algorithm.transform import At, Transform, chain, stateless
from fedquilt.compute.layout import State, Tensors

__all__ = [
    "Algorithm",
    "At",
    "Batches",
    "Cohort",
    "Course",
    "ExactMean",
    "Exchange",
    "First",
    "Fold",
    "Gather",
    "InitialFederation",
    "Loss",
    "Metric",
    "Parting",
    "Penalty",
    "PerClient",
    "Personalise",
    "Seen",
    "ServerTraining",
    "State",
    "Tensors",
    "Trained",
    "Transform",
    "Upload",
    "Visit",
    "WideMean",
    "accuracy",
    "add_exchange",
    "chain",
    "claim",
    "cross_entropy",
    "error",
    "mean_squared_error",
    "perplexity",
    "stateless",
    "top5",
]
