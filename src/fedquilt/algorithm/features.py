"""The features of a model: what its classifier is given."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from fedquilt.algorithm.penalty import watched
from fedquilt.base.types import Indices
from fedquilt.compute.layout import ModelState
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data, Split

TAKEN = 1000
"""Examples taken at a time. Fixed: a matrix product's last bits may depend on its number of rows."""


@torch.no_grad()
def features_of(replica: Replica, model: ModelState, layer: str, data: Data, split: Split, rows: Indices) -> Tensor:
    """Return the features of some rows of a split, one row each, in evaluation mode."""
    found = []
    tensors = replica.tensors(model)
    with watched(replica.module.eval(), layer) as features:
        for part in torch.split(torch.from_numpy(rows), data.at_once or TAKEN):
            functional_call(replica.module, tensors, (replica.placement.put(data.inputs(split, part)),))
            assert features.last is not None
            found.append(replica.placement.fetch(features.last.flatten(0, -2)))
    return torch.cat(found)
