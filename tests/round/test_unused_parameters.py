"""Parameters that the loss does not depend on stay as they are, as `torch.optim.SGD` leaves them, in every engine."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.engines.compiling import trouble
from fedquilt.partition.partition import Partition


class Branched(nn.Module):
    """Has a branch that is never taken, and a parameter whose gradient is 0, which is not the same."""

    def __init__(self):
        super().__init__()
        self.taken, self.never = nn.Linear(8, 3), nn.Linear(8, 3)
        self.flat = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.taken(x) + 0.0 * self.flat


def by_torch(module, data, steps):
    """The same steps by `torch.optim.SGD`, on all of one client's data at once."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5, weight_decay=0.3)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(data.train.x[:20]), data.train.y[:20]).backward()
        optimiser.step()
    return torch.cat([p.detach().flatten() for p in module.parameters()])


ENGINES = {
    "inline": fedquilt.inline,
    "vectorised": lambda: fedquilt.vectorised(block=2, workers=1),
    "compiled": lambda: fedquilt.inline(compute="compiled"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_weight_decay_leaves_them_as_torch_does(engine, blobs):
    if engine == "compiled" and trouble() is not None:
        pytest.skip(f"nothing can be compiled here: {trouble()}")
    torch.manual_seed(0)
    module = Branched()
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=3, batch=float("inf"), momentum=0.5, weight_decay=0.3)
    after = fedquilt.train(module, blobs, Partition.of([range(20)]), method, 1, engine=ENGINES[engine]())
    assert torch.equal(after.model.never.weight, module.never.weight)
    assert not torch.equal(after.model.flat, module.flat)
    assert (after.state.vector - by_torch(module, blobs, steps=3)).abs().max() < 1e-6


@pytest.mark.parametrize("engine", ["inline", "vectorised"])
def test_so_does_noise_on_gradients(engine, blobs, unbalanced):
    torch.manual_seed(0)
    module, method = Branched(), fedquilt.gradient_noise(fedquilt.fed_avg(fraction=1.0, batch=8), std=0.1)
    after = fedquilt.train(module, blobs, unbalanced, method, 2, engine=ENGINES[engine]()).model
    assert torch.equal(after.never.weight, module.never.weight)
    assert not torch.equal(after.taken.weight, module.taken.weight)
