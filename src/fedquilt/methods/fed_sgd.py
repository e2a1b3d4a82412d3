"""Federated SGD: the baseline of McMahan et al. (2017), §2.

Each client computes one gradient on all of its data and the server steps along their weighted mean. The paper shows that
this is federated averaging with E = 1 and B = ∞, and so it is here.
"""

from __future__ import annotations

from dataclasses import replace

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.base.arguments import Fraction, NonNegative, Rate, Size
from fedquilt.base.registry import methods
from fedquilt.methods.fed_avg import fed_avg


@methods.register
def fed_sgd(
    lr: Rate = 0.1, fraction: Fraction | None = None, weight_decay: NonNegative = 0.0, cohort: Size | None = None
) -> Algorithm:
    """One gradient per round on all of a client's data: FedAvg with E = 1, B = ∞ (McMahan 2017).

    `fraction` or `cohort` says how many clients take part in a round, as in `fed_avg`.

    >>> fed_sgd(lr=0.5).name
    'fed_sgd'
    """
    base = fed_avg(lr=lr, fraction=fraction, epochs=1, batch=float("inf"), weight_decay=weight_decay, cohort=cohort)
    return replace(base, name="fed_sgd")
