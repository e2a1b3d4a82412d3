"""FedProx: Li et al., Federated Optimization in Heterogeneous Networks (2020); compared with in Wei 2022.

Every client minimises F_k(w) + (μ/2)·‖w − w_t‖², over all parameters, against the model that the round started from.
"""

from __future__ import annotations

from dataclasses import replace

from fedquilt.algorithm import Algorithm, chain
from fedquilt.algorithm.parts.directions import pull_to_start
from fedquilt.base.arguments import NonNegative
from fedquilt.base.registry import wrappers


@wrappers.register
def fed_prox(algorithm: Algorithm, mu: NonNegative = 0.01) -> Algorithm:
    """Keep local models near the round's start by a proximal term (Li 2020, Wei 2022).

    `mu` is μ. With μ = 0 this is the wrapped method, to the bit. The reported local loss is that of the data, without the
    term.

    >>> from fedquilt import fed_avg
    >>> base = fed_avg()
    >>> fed_prox(base, mu=0.0) is base
    True
    """
    return replace(algorithm, local=chain(pull_to_start(mu), algorithm.local)) if mu else algorithm
