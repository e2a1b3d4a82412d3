"""Clients whose inputs are noisy to different degrees, and who are alike otherwise.

Li et al. 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study" (NIID-Bench), noise-based feature
imbalance: the data are divided at random and evenly, and the inputs of client i of N get Gaussian noise of variance σ·i/N,
i = 1, …, N. (The authors' code takes σ·i/(N − 1), i = 0, …, N − 1, as the standard deviation.) The noise is added to what
the model is given, after the data set's own preparation, and an example's noise is the same in every round.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedquilt.base.arguments import NonNegative, Seed, Size
from fedquilt.base.registry import partitions
from fedquilt.data.data import Data, Noise
from fedquilt.partition.dealing import Labels
from fedquilt.partition.iid import iid
from fedquilt.partition.partition import Partition


@partitions.register
def feature_skew(
    labels: Labels,
    clients: Size,
    sigma: NonNegative = 0.1,
    seed: Seed = 0,
    own_test: bool = False,
    data: Data | None = None,
) -> Partition:
    """Deal out evenly, and add noise of variance σ·i/K to the inputs of client i of K (Li 2022, NIID-Bench).

    With `own_test`, the test set of `data` is dealt out too, and every client's part is as noisy as what it trains on. The
    test set as a whole stays without noise.

    >>> held = feature_skew(np.zeros(4, dtype=np.int64), clients=2, sigma=0.5)
    >>> [np.square(held.noise.std[held.client(k)]).round(4).tolist() for k in range(2)]
    [[0.25, 0.25], [0.5, 0.5]]
    """
    held = iid(labels, clients, seed, own_test, data)
    std = np.sqrt(sigma * np.arange(1, clients + 1) / clients)
    test = held.test
    if test is not None and data is not None:
        test = replace(test, noise=_noise(test, std, len(data.test), seed, "test"))
    return replace(held, noise=_noise(held, std, len(labels), seed, "train"), test=test)


def _noise(held: Partition, std: npt.NDArray[np.float64], rows: int, seed: int, split: str) -> Noise:
    each = np.zeros(rows, dtype=np.float32)
    each[held.indices] = np.repeat(std, held.sizes)
    return Noise(each, seed, split)
