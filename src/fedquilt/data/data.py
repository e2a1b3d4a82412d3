"""A data set: raw arrays, and how they become a model's input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedquilt.core.loss import IGNORED
from fedquilt.core.noise import Noise
from fedquilt.errors import DataError

Prepare = Callable[[Tensor], Tensor]
"""Raw examples to model input; the same for training and testing."""

Augment = Callable[[Tensor, np.random.Generator], Tensor]
"""Raw examples to model input with random changes, drawn from the generator alone."""


def whole(targets: Tensor) -> Tensor:
    """Return classes as losses and metrics take them: a data set may keep them in fewer bytes.

    >>> import torch
    >>> whole(torch.tensor([3], dtype=torch.int16)).dtype, whole(torch.tensor([0.5])).dtype
    (torch.int64, torch.float32)
    """
    return targets if targets.is_floating_point() else targets.long()


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Examples and their labels, one row each.

    Where the data set knows them: `ids` is the number of the client that each example belongs to by nature (its author,
    its writer), `places` the latitude and longitude where it was made, in degrees. `noise` is added to examples once they
    are ready for the model.
    """

    x: Tensor
    y: Tensor
    ids: npt.NDArray[np.int64] | None = None
    places: npt.NDArray[np.float64] | None = None
    noise: Noise | None = None

    def __repr__(self) -> str:
        """Say how large it is, not all that is in it."""
        return f"Split({len(self)} examples of {tuple(self.x.shape[1:])})"

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.y)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return some examples and their labels; on bytes, in a tenth of the time of `x[rows]`."""
        return self.x.index_select(0, rows), self.y.index_select(0, rows)


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """A data set with its training and test part.

    `prepare` turns raw rows (bytes, say) into what the model takes, a batch at a time, so that the set stays small in
    memory. `augment`, where there is one, stands in for it in training. With 0 `classes`, targets are numbers.

    Where making examples ready takes long (images are read from files), `ahead` is the number of batches that a thread
    makes ready while the model trains; where they are large, `at_once` is how many are made ready at a time, at most,
    unless a batch has more.
    """

    name: str
    train: Split
    test: Split
    classes: int
    prepare: Prepare | None = None
    augment: Augment | None = None
    ahead: int = 0
    at_once: int | None = None

    def __repr__(self) -> str:
        """Say how large it is, not all that is in it."""
        targets = f"{self.classes} classes" if self.classes else "numbers as targets"
        return f"Data({self.name}: {len(self.train)} to train, {len(self.test)} to test, {targets})"


def require_sound(data: Data) -> None:
    """Raise a DataError if a part has no examples, or labels that are none; a loader of the user's own may not look.

    >>> import torch
    >>> split = Split(torch.zeros(2, 3), torch.tensor([0, 2]))
    >>> require_sound(Data("mine", split, split, classes=2))
    Traceback (most recent call last):
    fedquilt.errors.DataError: mine: a label to train on is 2; with 2 classes they go from 0 to 1
    """
    for split, purpose in ((data.train, "to train on"), (data.test, "to test on")):
        if not len(split):
            raise DataError(f"{data.name}: has no examples {purpose}")
        if len(split.x) != len(split.y):
            raise DataError(f"{data.name}: has {len(split.x)} examples {purpose}, but {len(split.y)} labels")
        labels = split.y if split.y.dim() == 1 else split.y[split.y != IGNORED]
        if not data.classes or not labels.numel():
            continue
        least, most = (int(value) for value in labels.aminmax())
        if least < 0 or most >= data.classes:
            wrong, last = least if least < 0 else most, data.classes - 1
            raise DataError(
                f"{data.name}: a label {purpose} is {wrong}; with {data.classes} classes they go from 0 to {last}"
            )
