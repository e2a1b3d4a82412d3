"""Synthetic(α, β): clients whose models and features differ by known amounts.

Li et al. 2020, "Federated Optimization in Heterogeneous Networks", and the code that goes with it; Wei et al. 2022,
"Federated Learning for Non-IID Data: From Theory to Algorithm", section 5.1, where it is Synthetic(μ, ν). For client k

    u_k ~ N(0, α),  W_k ~ N(u_k, 1), b_k ~ N(u_k, 1)      its softmax regression
    B_k ~ N(0, β),  v_k ~ N(B_k, 1), x ~ N(v_k, Σ)        its features, Σ diagonal with Σ_jj = j^−1.2
    y = argmax softmax(W_k x + b_k)

with 60 features and 10 classes. What the papers leave open, and what is chosen here, after the code of Li et al.:

- α and β are standard deviations.
- Sizes "follow a power law": the code draws ⌊exp(N(4, 2))⌋ + 50, with standard deviation 2, which is log-normal. `minimum`
  stands in for the 50; Wei 2022 says that clients have 100 samples at least (§5.2), and 10 clients. Li et al. have 30.
- The sizes are those of the training part, so that `minimum` holds for what a client trains on; the code counts test
  examples with them. As there, a tenth of a client's examples are for testing, here beside the others and rounded up.
- The test part is that of all clients together (Wei 2022, §5.3).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.arguments import NonNegative, Seed, Size
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Data, Split
from fedquilt.data.labels import TestFraction

USUAL = 403
"""Examples of a client besides the minimum, in the mean: that of the lognormal distribution that they are drawn from."""


@datasets.register
def synthetic(
    alpha: NonNegative = 1.0,
    beta: NonNegative = 1.0,
    clients: Size = 30,
    minimum: Size = 50,
    features: Size = 60,
    classes: Size = 10,
    test_fraction: TestFraction = 0.1,
    seed: Seed = 0,
) -> Data:
    """Synthetic(α, β): every client with its own model, features and size (Li 2020, Wei 2022).

    `alpha` says how much the clients' models differ, `beta` how much their features. Take the partition that goes by the
    data's own clients; a client's examples are the same whatever the number of clients.

    >>> data = synthetic(alpha=0.5, beta=0.5, clients=10, minimum=100)
    >>> data.train.x.shape[1], data.classes, len(set(data.train.ids.tolist()))
    (60, 10, 10)
    """
    likely = clients * (minimum + USUAL)
    require_memory(f"synthetic: about {likely:,} examples", likely * features * 4)
    require_memory(f"synthetic: {clients:,} clients", clients * 100)
    require_memory(f"synthetic: {features:,} features and {classes:,} classes", features * classes * 8)
    drawn = (generator(seed, "synthetic size", client).lognormal(mean=4, sigma=2) for client in range(clients))
    trained = np.array([int(size) + minimum for size in drawn])
    tested = np.ceil(trained * test_fraction / (1 - test_fraction)).astype(np.int64)
    sizes = trained + tested
    require_memory(f"synthetic: {int(sizes.sum()):,} examples", int(sizes.sum()) * features * 4)
    largest = int(sizes.max())
    require_memory(
        f"synthetic: {largest:,} examples of a client, with {features:,} features and {classes:,} classes",
        largest * (2 * features + classes) * 8,
    )
    x = np.empty((int(sizes.sum()), features), dtype=np.float32)
    y = np.empty(len(x), dtype=np.int64)
    ends = np.cumsum(sizes)
    for k in range(clients):
        held = slice(ends[k] - sizes[k], ends[k])
        x[held], y[held] = _client(seed, k, int(sizes[k]), alpha, beta, features, classes)
    ids = np.repeat(np.arange(clients), sizes)
    last = np.arange(len(x)) >= np.repeat(ends - tested, sizes)
    train, test = (
        Split(torch.from_numpy(x[chosen]), torch.from_numpy(y[chosen]), ids=ids[chosen]) for chosen in (~last, last)
    )
    return Data("synthetic", train, test, classes=classes)


def _client(
    seed: int, client: int, size: int, alpha: float, beta: float, features: int, classes: int
) -> tuple[npt.NDArray[np.float64], Indices]:
    rng = generator(seed, "synthetic", client)
    u, b = alpha * rng.normal(), beta * rng.normal()
    weights, bias = rng.normal(u, 1, (features, classes)), rng.normal(u, 1, classes)
    centre = rng.normal(b, 1, features)
    x = centre + rng.normal(size=(size, features)) * np.arange(1, features + 1) ** -0.6
    return x, (x @ weights + bias).argmax(axis=1)
