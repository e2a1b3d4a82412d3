"""A federated learning algorithm: a record of parts, in the order in which data flows through a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedquilt.core.describe import describe
from fedquilt.core.loss import Loss
from fedquilt.core.params import Tensors
from fedquilt.core.transform import Transform
from fedquilt.data.data import Data
from fedquilt.errors import SpecError
from fedquilt.partition.partition import Partition

Indices = npt.NDArray[np.int64]

Select = Callable[[Indices, np.random.Generator], Indices]
"""(sizes of all clients, generator) -> the cohort's clients."""


class Batches(NamedTuple):
    """The examples of one client's local training: batch i is `order[cuts[i]:cuts[i + 1]]`."""

    order: Indices
    cuts: Indices


Sample = Callable[[int, np.random.Generator], Batches]
"""(a client's number of examples, generator) -> its batches."""

Announce = Callable[[Data, Partition], Tensors]
"""(data, who holds what) -> what the server tells every client besides the model."""

Importance = Callable[[Tensor, int, Tensors], Tensor]
"""(labels of all of a client's data, number of classes, what was announced) -> the weight of an example of each class."""

Weigh = Callable[[int], float]
"""A client's number of examples -> the weight of its update."""


class Fold(Protocol):
    """Takes in updates one at a time, in any order, and ends with one vector."""

    def add(self, slot: int, delta: Tensor, weight: float) -> None:
        """Take in one update. The tensor may be overwritten after the call."""

    def finish(self) -> Tensor | None:
        """Return the result, or nothing if no weight was reported."""


Reduce = Callable[[int, float], Fold]
"""(length of the vector, weight of the whole planned cohort) -> an empty fold."""


@dataclass(frozen=True)
class Algorithm:
    """What a federated method does in a round.

    `delta` always means after − before. The server treats −delta as a gradient, so that the same descent serves clients
    and server. `announce` and `importance` give examples weights by their class. `keep_local_state` lets a client's
    optimiser state live on to its next round; `pooled` trains on the union of all clients' data as one client (the
    centralised baseline). `claims` says which wrapper set which part.
    """

    name: str
    select: Select
    sample: Sample
    loss: Loss
    local: Transform
    upload: Transform
    weigh: Weigh
    reduce: Reduce
    server: Transform
    announce: Announce | None = None
    importance: Importance | None = None
    keep_local_state: bool = False
    pooled: bool = False
    claims: tuple[tuple[str, str], ...] = ()


def claim(algorithm: Algorithm, by: str, **parts: Any) -> Algorithm:
    """Replace parts in a wrapper's name; two wrappers that set one part to different values are an error.

    >>> from fedquilt.methods import fed_avg
    >>> once = claim(fed_avg(), "first", pooled=True)
    >>> claim(once, "second", pooled=True).pooled
    True
    >>> claim(once, "second", pooled=False)
    Traceback (most recent call last):
    fedquilt.errors.SpecError: first and second both set `pooled`, to different values: take one of them
    """
    claimed = dict(algorithm.claims)
    for part, value in parts.items():
        if part in claimed and describe(getattr(algorithm, part)) != describe(value):
            raise SpecError(f"{claimed[part]} and {by} both set `{part}`, to different values: take one of them")
        claimed.setdefault(part, by)
    return replace(algorithm, claims=tuple(claimed.items()), **parts)
