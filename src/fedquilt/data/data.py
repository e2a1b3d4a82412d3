"""A data set: raw arrays, how they become a model's input, and noise that is fixed for every example."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.base.rng import generator

IGNORED = -100
"""A target that does not count: padding in a sequence."""

_LONGEST = 30
"""Characters of a class's name that are shown."""

_MANY = 10_000
"""Classes of which any machine can count the clients' examples."""

Prepare = Callable[[Tensor], Tensor]
"""Raw examples to model input; the same for training and testing."""

Augment = Callable[[Tensor, np.random.Generator], Tensor]
"""Raw examples to model input with random changes, drawn from the generator alone."""


@dataclass(frozen=True, eq=False, repr=False)
class Noise:
    """Gaussian noise of a standard deviation for every row of a split; `split` sets those of two splits apart.

    It is drawn when it is needed and never kept: it depends on the seed, the split and the row alone, so that an example
    looks the same in every round, batch and process. `numbers` are the rows' numbers in the whole split, where this is the
    noise of some of its rows.
    """

    std: npt.NDArray[np.float32]
    seed: int
    split: str = "train"
    numbers: npt.NDArray[np.int64] | None = None

    def only(self, rows: npt.NDArray[np.int64]) -> Noise:
        """Return the noise of some rows, which is what it was."""
        return Noise(self.std[rows], self.seed, self.split, rows if self.numbers is None else self.numbers[rows])

    def added(self, x: Tensor, rows: npt.NDArray[np.int64]) -> Tensor:
        """Add every row's own noise to inputs that are ready for the model."""
        if not x.is_floating_point():
            raise DataError(f"noise can only be added to floating-point inputs, but the model's inputs are {x.dtype}")
        # One key; the row is the counter's second word, so that every row has its own stream at little cost.
        rng = generator(self.seed, f"feature noise {self.split}")
        state = rng.bit_generator.state
        distinct, indices = np.unique(rows, return_inverse=True)
        drawn = np.zeros((len(distinct), *x.shape[1:]), dtype=np.float32)
        stds, numbers = self.std[distinct], distinct if self.numbers is None else self.numbers[distinct]
        for index in np.flatnonzero(stds).tolist():
            state["state"]["counter"][1] = numbers[index]
            rng.bit_generator.state = state
            rng.standard_normal(dtype=np.float32, out=drawn[index])
        drawn *= stds.reshape(-1, *[1] * (drawn.ndim - 1))
        return x + torch.from_numpy(drawn)[torch.from_numpy(indices.reshape(-1))]


def whole(targets: Tensor) -> Tensor:
    """Return classes as losses and metrics take them: a data set may keep them in fewer bytes."""
    return targets if targets.is_floating_point() else targets.long()


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Examples and their labels, one row each.

    Where the data set knows them: `ids` is the number of the client that each example belongs to by nature (its author,
    its writer), `coordinates` the latitude and longitude where it was made, in degrees. `noise` is added to examples once
    they are ready for the model.
    """

    x: Tensor
    y: Tensor
    ids: npt.NDArray[np.int64] | None = None
    coordinates: npt.NDArray[np.float64] | None = None
    noise: Noise | None = None

    def __repr__(self) -> str:
        return f"Split({len(self)} examples of shape {tuple(self.x.shape[1:])})"

    def __len__(self) -> int:
        return len(self.y)

    def only(self, rows: npt.NDArray[np.int64]) -> Split:
        """Return a split that holds these rows alone."""
        taken = torch.from_numpy(rows)
        return Split(
            self.x.index_select(0, taken),
            self.y.index_select(0, taken),
            None if self.ids is None else self.ids[rows],
            None if self.coordinates is None else self.coordinates[rows],
            None if self.noise is None else self.noise.only(rows),
        )

    def targets(self, rows: Tensor | range) -> Tensor:
        """Return some rows' targets as losses and metrics take them."""
        return whole(self.y[rows.start : rows.stop] if isinstance(rows, range) else self.y.index_select(0, rows))


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """A data set with its training and test part.

    `prepare` turns raw rows (bytes, say) into what the model takes, a batch at a time, so that the set stays small in
    memory. `augment`, where there is one, stands in for it in training. With 0 `classes`, targets are numbers.

    Where making examples ready takes long (images are read from files), `ahead` is the number of batches that a thread
    makes ready while the model trains; where they are large, `at_once` is how many are made ready at a time, at most,
    unless a batch has more.

    `class_names` are what the classes are called, in their order, where the data set says so; pictures and tables show
    them.
    """

    name: str
    train: Split
    test: Split
    classes: int
    prepare: Prepare | None = None
    augment: Augment | None = None
    ahead: int = 0
    at_once: int | None = None
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be used: too many classes, or names for another number of them."""
        if self.class_names is not None and len(self.class_names) != self.classes:
            raise DataError(f"{self.name}: has {self.classes} classes, but {len(self.class_names)} names for them")
        require_countable(self.name, self.classes)

    @property
    def predictions(self) -> int:
        """How many predictions are made for an example: one, or one for every place of a text.

        >>> texts = Split(torch.zeros(3, 80), torch.zeros(3, 80, dtype=torch.int64))
        >>> Data("texts", texts, texts, classes=2).predictions
        80
        """
        labels = self.test.y if len(self.test) else self.train.y
        return 1 if labels.is_floating_point() else math.prod(labels.shape[1:])

    def inputs(self, split: Split, rows: Tensor | range, rng: np.random.Generator | None = None) -> Tensor:
        """Return some rows of a split as the model takes them: augmented if there is a generator, else prepared.

        A row's noise, where the split has any, is added last.

        >>> split = Split(torch.tensor([[0], [100], [200]], dtype=torch.uint8), torch.tensor([0, 1, 0]))
        >>> data = Data("bytes", split, split, classes=2, prepare=lambda x: x.float() / 200)
        >>> data.inputs(split, torch.tensor([2, 1])).tolist()
        [[1.0], [0.5]]
        """
        x = split.x[rows.start : rows.stop] if isinstance(rows, range) else split.x.index_select(0, rows)
        if self.augment is not None and rng is not None:
            x = self.augment(x, rng)
        elif self.prepare is not None:
            x = self.prepare(x)
        if split.noise is None:
            return x
        return split.noise.added(x, np.asarray(rows) if isinstance(rows, range) else rows.numpy())

    def batch(
        self, split: Split, rows: Tensor | range, rng: np.random.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return some rows of a split as model and loss take them: inputs and targets.

        >>> split = Split(torch.zeros(3, 2), torch.tensor([0, 1, 2], dtype=torch.int16))
        >>> x, y = Data("zeros", split, split, classes=3).batch(split, range(1, 3))
        >>> tuple(x.shape), y
        ((2, 2), tensor([1, 2]))
        """
        return self.inputs(split, rows, rng), split.targets(rows)

    def class_name(self, number: int) -> str:
        """Return what a class is called, fit to be shown: on one line, and not too long.

        >>> split = Split(torch.zeros(2, 3), torch.tensor([0, 1]))
        >>> data = Data("pets", split, split, classes=2, class_names=("cat", "d\\n\\x1b[1mog" + "!" * 50))
        >>> data.class_name(0), data.class_name(1)
        ('cat', 'd\\\\n\\\\x1b[1mog!!!!!!!!!!!!!!!!!…')
        >>> Data("digits", split, split, classes=2).class_name(1)
        '1'
        """
        if self.class_names is None:
            return str(number)
        name = self.class_names[number][: _LONGEST + 1]
        shown = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in name)
        return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"

    def __repr__(self) -> str:
        targets = f"{self.classes} classes" if self.classes else "numbers as targets"
        return f"Data({self.name}: {len(self.train)} to train, {len(self.test)} to test, {targets})"


def require_countable(name: str, classes: int) -> None:
    """Raise a DataError if there are more classes than can be counted for a hundred clients.

    >>> require_countable("mine", 10**12)
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: mine: to count 1,000,000,000,000 classes of 100 clients would take 800,000 GB ...
    """
    if classes > _MANY:
        require_memory(f"{name}: to count {classes:,} classes of 100 clients", 800 * classes)


def require_sound(data: Data, parts: Collection[str] = ("train", "test")) -> None:
    """Raise a DataError if a part has no examples, or labels that are none; a loader of the user's own may not look.

    >>> split = Split(torch.zeros(2, 3), torch.tensor([0, 2]))
    >>> require_sound(Data("mine", split, split, classes=2))
    Traceback (most recent call last):
    fedquilt.base.errors.DataError: mine: a label to train on is 2; with 2 classes they go from 0 to 1
    """
    for part, split, purpose in (("train", data.train, "to train on"), ("test", data.test, "to test on")):
        if part not in parts:
            continue
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
