"""The small federation on which the papers' scripts and the package are compared, and the draws that both are given."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import fedquilt
from fedquilt.base.rng import generator
from fedquilt.partition import Partition

SEED = 1
ROUNDS = 5
INF = float("inf")

# Examples by class: unbalanced and skewed. Sizes 12, 40, 25, 18; two clients lack a class.
COUNTS = ((10, 2, 0), (4, 6, 30), (1, 20, 4), (0, 9, 9))
SIZES = tuple(sum(counts) for counts in COUNTS)


def _examples():
    rng = np.random.default_rng(7)
    y = np.concatenate([rng.permutation(np.repeat([0, 1, 2], counts)) for counts in COUNTS])
    centres = rng.normal(size=(3, 5))
    x = (centres[y] + rng.normal(size=(len(y), 5))).astype(np.float32)
    return x, y


X, Y = _examples()
DATA = fedquilt.arrays(X, Y, X[:20], Y[:20], classes=3)
PARTITION = Partition.of(np.split(np.arange(len(Y)), np.cumsum(SIZES)[:-1]))
CLIENTS = [
    (torch.from_numpy(X[rows]).double(), torch.from_numpy(Y[rows])) for rows in map(PARTITION.client, range(len(SIZES)))
]


def network():
    """One hidden layer with tanh, in the package's single precision."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def plain(module):
    """The network as the papers' scripts take it: named matrices that multiply from the right, in double precision."""
    return by_letter(dict(module.named_parameters()))


def by_letter(tensors):
    w = {name: value.detach().double() for name, value in tensors.items()}
    return {"U": w["0.weight"].T, "a": w["0.bias"], "V": w["2.weight"].T, "c": w["2.bias"]}


class Fourier(nn.Module):
    """f(x) = Wᵀφ(x), φ(x) = √2 cos(ωᵀx + b), as Wei 2022 prints it."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(11)
        self.omega = nn.Parameter(torch.from_numpy(rng.normal(scale=0.5, size=(5, 8)).astype(np.float32)))
        self.b = nn.Parameter(torch.from_numpy(rng.uniform(-np.pi, np.pi, size=8).astype(np.float32)))
        self.W = nn.Parameter(torch.from_numpy(rng.normal(scale=0.3, size=(8, 3)).astype(np.float32)))

    def forward(self, x):
        return 2**0.5 * torch.cos(x @ self.omega + self.b) @ self.W


def named(module):
    return {name: value.detach().double() for name, value in module.named_parameters()}


def trained(module, method, rounds=ROUNDS):
    """What the package makes of it."""
    return fedquilt.train(module, DATA, PARTITION, method, rounds=rounds, engine=fedquilt.inline(), seed=SEED)


def distance(found, expected):
    """The largest difference between two models, over all parameters."""
    assert found.keys() == expected.keys()
    return max(float((found[name] - expected[name]).abs().max()) for name in expected)


def cohorts(method, rounds=ROUNDS):
    """Who takes part: for every round the clients in the order of their slots."""
    sizes = np.asarray(SIZES)
    return [method.select(sizes, generator(SEED, "select", t)).tolist() for t in range(1, rounds + 1)]


def draws(method, rounds=ROUNDS):
    """The rows of a client's own data, in the order in which it meets them: for every round [(client, rows), …]."""
    return [
        [
            (k, torch.from_numpy(method.sample(SIZES[k], generator(SEED, "sample", t, k, slot)).order))
            for slot, k in enumerate(cohort)
        ]
        for t, cohort in enumerate(cohorts(method, rounds), start=1)
    ]


def passes(method, epochs, rounds=ROUNDS):
    """The same, as {client: its E orderings of its data} for every round."""
    return [{k: list(rows.view(epochs, SIZES[k])) for k, rows in drawn} for drawn in draws(method, rounds)]


def noise(method, module, steps):
    """For every round {client: standard normal values for each of its steps}; `steps(n)` says how many those are."""
    shapes = {name: p.shape for name, p in module.named_parameters()}
    drawn = []
    for t, cohort in enumerate(cohorts(method), start=1):
        drawn.append({})
        for slot, k in enumerate(cohort):
            rng = generator(SEED, "local noise", t, k, slot)
            drawn[-1][k] = [
                by_letter({n: torch.from_numpy(rng.standard_normal(s, dtype=np.float32)) for n, s in shapes.items()})
                for _ in range(steps(SIZES[k]))
            ]
    return drawn
