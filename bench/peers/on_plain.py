"""The plain PyTorch loop: one model, `torch.optim.SGD`, a client after the other."""

from __future__ import annotations

# user code begins
import copy

import numpy as np
import torch
from torch_models import inputs, loss, vector
from turns import play


def simulate(work, turns):
    rng = np.random.default_rng(1)
    clients = [tuple(torch.from_numpy(part) for part in work.client(index)) for index in range(work.clients)]
    model = work.torch_model()
    while turns.boundary():
        total = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
        chosen = rng.choice(work.clients, work.cohort, replace=False)
        seen = sum(work.sizes[index] for index in chosen)
        for index in chosen:
            local = copy.deepcopy(model)
            optimiser = torch.optim.SGD(local.parameters(), lr=work.lr, momentum=work.momentum)
            x, y = clients[index]
            for _ in range(work.epochs):
                order = torch.randperm(len(y)) if work.shuffled else torch.arange(len(y))
                for batch in order.split(work.batch):
                    optimiser.zero_grad()
                    loss(local(inputs(work, x[batch])), y[batch]).backward()
                    optimiser.step()
            for name, value in local.state_dict().items():
                total[name] += value * (len(y) / seen)
        model.load_state_dict(total)
    return vector(model)


play(simulate)
# user code ends
