"""Clients whose training can be worked out by hand, and gradients for plain loops to compare with."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedquilt
from fedquilt.algorithm.loss import Loss
from fedquilt.partition.partition import Partition


def _half_square(outputs, targets):
    return (outputs[:, 0] - targets) ** 2 / 2, None


HALF_SQUARE = Loss(each=_half_square)


@dataclass(frozen=True)
class Quadratics:
    """One parameter w, which starts at 0, and clients with F_k(w) = (x_k·w − y_k)² / 2.

    The curvature of client k is a_k = x_k², its optimum b_k = y_k / x_k. It holds `copies[k]` times the same example: a
    batch of 1 makes that many steps an epoch, all on F_k itself.
    """

    x: tuple[int, ...]
    y: tuple[int, ...]
    copies: tuple[int, ...]

    def slope(self, k, w):
        """F_k'(w)."""
        return self.x[k] * (self.x[k] * w - self.y[k])

    def data(self):
        x, y = np.repeat(self.x, self.copies), np.repeat(self.y, self.copies)
        x = x.astype(np.float32)[:, None]
        return fedquilt.arrays(x, y, x, y, name="quadratics")

    def partition(self):
        return Partition.by_sizes(np.arange(sum(self.copies)), np.asarray(self.copies))

    def train(self, wrap=lambda base: base, rounds=1, seed=1, method=None, **arguments):
        """Train w by fed_avg with squared loss, or by `method`, as wrapped by `wrap`."""
        base = method or fedquilt.fed_avg(**{"fraction": 1.0, "batch": 1} | arguments)
        algorithm = wrap(replace(base, loss=HALF_SQUARE))
        module = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(module.weight)
        return fedquilt.train(
            module, self.data(), self.partition(), algorithm, rounds, seed=seed, engine=fedquilt.inline()
        )


@pytest.fixture(scope="session")
def quadratics():
    return Quadratics


@pytest.fixture(scope="session")
def half_square():
    return HALF_SQUARE


def _minus_output(outputs, targets):
    return -outputs[:, 0], None


@dataclass(frozen=True)
class Linears:
    """Examples with the loss −⟨x, w⟩: a step moves w by lr times the mean of its batch, wherever w is.

    Client k holds the next `sizes[k]` rows of `x`, with the labels `y`. w starts at 0, unless a module is given.
    """

    x: np.ndarray | list[list[float]]
    sizes: tuple[int, ...]
    y: tuple[int, ...] | None = None

    def module(self):
        module = nn.Linear(np.shape(self.x)[1], 1, bias=False)
        nn.init.zeros_(module.weight)
        return module

    def federation(self, wrap=lambda base: base, module=None, **arguments):
        """The module, data, partition and method of a run; fed_avg with this loss, as wrapped by `wrap`."""
        x = np.asarray(self.x, dtype=np.float32)
        y = np.zeros(len(x), dtype=np.int64) if self.y is None else np.asarray(self.y)
        base = fedquilt.fed_avg(**{"lr": 1.0, "fraction": 1.0, "batch": float("inf")} | arguments)
        return (
            module or self.module(),
            fedquilt.arrays(x, y, x, y, name="linear"),
            Partition.by_sizes(np.arange(len(x)), np.asarray(self.sizes)),
            wrap(replace(base, loss=Loss(each=_minus_output))),
        )

    def train(self, wrap=lambda base: base, rounds=1, seed=1, module=None, **arguments):
        parts = self.federation(wrap, module=module, **arguments)
        return fedquilt.train(*parts, rounds, seed=seed, engine=fedquilt.inline())


@pytest.fixture(scope="session")
def linears():
    return Linears


@pytest.fixture
def gradient(blobs, unbalanced, smooth):
    """(client, flat parameters) -> the gradient of the client's mean loss, in double precision."""
    module, x = copy.deepcopy(smooth).double(), blobs.train.x.double()

    def of(k, vector, partition=unbalanced):
        rows = torch.from_numpy(partition.client(k))
        nn.utils.vector_to_parameters(vector.double().clone(), module.parameters())
        loss = functional.cross_entropy(module(x[rows]), blobs.train.y[rows])
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])

    return of


@pytest.fixture
def start(smooth):
    return nn.utils.parameters_to_vector(smooth.parameters()).detach().double()


@pytest.fixture
def run(blobs, unbalanced, smooth):
    """Train the small model on the small data; any part can be given."""

    def train(method, rounds=1, module=None, data=None, partition=None, **options):
        options = {"seed": 1, "engine": fedquilt.inline()} | options
        return fedquilt.train(module or smooth, data or blobs, partition or unbalanced, method, rounds, **options)

    return train


@pytest.fixture
def normalised():
    """A model with buffers, floating-point and whole-number ones."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


@pytest.fixture
def poisoned(blobs):
    """Data in which some rows of the training set are not numbers: whoever trains on one sends NaN."""

    def make(rows):
        x = blobs.train.x.clone()
        x[torch.as_tensor(rows)] = float("nan")
        return replace(blobs, train=replace(blobs.train, x=x))

    return make
