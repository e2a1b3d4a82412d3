"""The partition that the data set comes with: by author, writer, speaker or user.

McMahan et al. 2017, section 3 (Shakespeare's roles); Hsu et al. 2020, "Federated Visual Classification with Real-World Data
Distribution", section 4 (users of iNaturalist and of Wikimedia).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedquilt.base.arguments import Count
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import partitions
from fedquilt.data.data import Data
from fedquilt.data.joined import SERVER
from fedquilt.partition.partition import Partition


@partitions.register
def natural(data: Data, least: Count = 1, own_test: bool = True) -> Partition:
    """Give every example to the client it belongs to by nature: its author, its user.

    Clients come in the order of their ids; those with fewer than `least` training examples are left out. Examples of the
    id -1 are the server's own. With `own_test`, clients are tested on the test examples of the same ids, where the data
    set has any.

    >>> from fedquilt.data.data import Split
    >>> import torch
    >>> train = Split(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]), ids=np.array([7, 3, 7, 7]))
    >>> held = natural(Data("mine", train, train, classes=2))
    >>> [held.client(k).tolist() for k in range(2)], held.test.sizes.tolist()
    ([[1], [0, 2, 3]], [1, 3])
    """
    if data.train.ids is None:
        raise SpecError(
            f"natural: the data set {data.name} does not record which client holds which example; use another partition, "
            "such as iid"
        )
    if not len(data.train):
        raise SpecError(f"natural: the data set {data.name} has no examples to train on")
    ids, sizes = np.unique(data.train.ids[data.train.ids != SERVER], return_counts=True)
    ids = ids[sizes >= least]
    if not len(ids):
        raise SpecError(f"least: no client holds {least} examples; the largest client holds {int(sizes.max())}")
    held = _by_id(data.train.ids, ids)
    if own_test and data.test.ids is not None and np.isin(data.test.ids, ids).any():
        held = replace(held, test=_by_id(data.test.ids, ids))
    return held


def _by_id(owner: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> Partition:
    """Give rows to the clients of sorted ids; those of other ids have no owner."""
    index = np.minimum(np.searchsorted(ids, owner), len(ids) - 1)
    rows = np.flatnonzero(ids[index] == owner)
    order = np.argsort(index[rows], kind="stable")
    return Partition.by_sizes(rows[order], np.bincount(index[rows], minlength=len(ids)))
