"""Virtual clients (FedVC): Hsu, Qi and Brown, Federated Visual Classification with Real-World Data Distribution (2020).

§5.3 and Algorithm 1: every selected client trains on exactly N_VC examples, S = N_VC / B steps, resampled for every round:
without replacement where n_k ≥ N_VC, with replacement otherwise. Clients are selected with probability ∝ n_k, and their
updates averaged with equal weights. Large clients are in effect split into several, small ones repeated.
"""

from __future__ import annotations

import math

from fedquilt.algorithm.algorithm import Algorithm, claim
from fedquilt.algorithm.parts.reduction import equally
from fedquilt.algorithm.parts.sampling import Epochs, Resample
from fedquilt.algorithm.parts.selection import BySize, Uniform
from fedquilt.base.arguments import Size
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import wrappers


@wrappers.register
def fed_vc(algorithm: Algorithm, size: Size = 256, distinct: bool = False) -> Algorithm:
    """Split large clients and repeat small ones: N_VC examples each, selected by size (Hsu 2020).

    - `size` is N_VC. The batch size B and the number of clients in a round are those of the wrapped method; B must divide
      N_VC, and the method's epochs must be 1, since S = N_VC / B steps take their place.
    - Clients are drawn with replacement, so that the method's `cohort` may be larger than the population: the paper's
      iNaturalist-Geo-30k has 11 clients, and rounds have 10 to 100. `distinct` forbids drawing a client twice; inclusion
      is then no longer proportional to a client's size.

    >>> from fedquilt import fed_avg_m
    >>> fed_vc(fed_avg_m(batch=64), size=256).sample
    Resample(size=256, batch=64)
    """
    sample, select = algorithm.sample, algorithm.select
    if isinstance(sample, Epochs) and isinstance(select, Uniform):
        if not isinstance(sample.count, int) or not isinstance(sample.batch, int | float):
            raise SpecError("fed_vc: the method's epochs and batch must not change over rounds")
        epochs, batch = sample.count, sample.batch
    else:
        raise SpecError("fed_vc needs a method that selects clients uniformly and trains by epochs, such as fed_avg")
    if epochs != 1:
        raise SpecError(f"fed_vc: epochs must be 1, got {epochs}: the number of steps is size / batch")
    if math.isinf(batch):
        batch = size
    if size % batch:
        below = max(int(size // batch * batch), int(batch))
        raise SpecError(
            f"fed_vc: size: must be a multiple of the method's batch size, {batch:g}, such as {below} or "
            f"{below + int(batch)}, got {size}"
        )
    return claim(
        algorithm,
        "fed_vc",
        select=BySize(select.fraction, distinct, select.cohort),
        sample=Resample(size, int(batch)),
        weigh=equally,
    )
