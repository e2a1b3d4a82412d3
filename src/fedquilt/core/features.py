"""The features of a model: what its classifier is given."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from fedquilt.core.algorithm import Indices
from fedquilt.core.params import ModelState
from fedquilt.core.penalty import watched
from fedquilt.core.workbench import Workbench
from fedquilt.data.data import Data, Split

TAKEN = 1000
"""Examples taken at a time. Fixed: a matrix product's last bits may depend on its number of rows."""


@torch.no_grad()
def features_of(bench: Workbench, model: ModelState, layer: str, data: Data, split: Split, rows: Indices) -> Tensor:
    """Return the features of some rows of a split, one row each, in evaluation mode."""
    found = []
    tensors = bench.tensors(model)
    with watched(bench.module.eval(), layer) as features:
        for part in torch.split(torch.from_numpy(rows), data.at_once or TAKEN):
            x = split.x.index_select(0, part)
            x = x if data.prepare is None else data.prepare(x)
            x = x if split.noise is None else split.noise.added(x, part.numpy())
            functional_call(bench.module, tensors, (bench.place.put(x),))
            assert features.last is not None
            found.append(bench.place.fetch(features.last.flatten(0, -2)))
    return torch.cat(found)
