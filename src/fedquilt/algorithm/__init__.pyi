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
from fedquilt.algorithm.exact import ExactMean, WideMean
from fedquilt.algorithm.exchange import Exchange, First, Gather, InitialFederation, Parting, Trained, Upload, Visit
from fedquilt.algorithm.loss import Loss
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.parts.losses import cross_entropy, mean_squared_error
from fedquilt.algorithm.parts.metrics import accuracy, error, perplexity, top5
from fedquilt.algorithm.penalty import Penalty, Seen
from fedquilt.algorithm.transform import At, Transform, chain, stateless
from fedquilt.algorithm.updates import Cohort, Fold
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
