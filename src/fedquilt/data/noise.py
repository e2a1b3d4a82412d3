"""Noise on examples that is fixed for every one of them: the features of owners whose devices differ.

Drawn when it is needed and never kept. The noise of a row depends on the seed, the split and the row alone, so that an
example looks the same in every round, batch and process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.base.errors import DataError
from fedquilt.base.rng import generator


@dataclass(frozen=True, eq=False, repr=False)
class Noise:
    """Gaussian noise of a standard deviation for every row of a split; `split` sets those of two splits apart.

    `numbers` are the rows' numbers in the whole split, where this is the noise of some of its rows.

    >>> noise = Noise(np.array([0.0, 0.5], dtype=np.float32), seed=1)
    >>> x = noise.added(torch.zeros(3, 4), np.array([1, 0, 1]))
    >>> bool((x[0] == x[2]).all()), bool((x[0] != 0).all()), bool((x[1] == 0).all())
    (True, True, True)
    """

    std: npt.NDArray[np.float32]
    seed: int
    split: str = "train"
    numbers: npt.NDArray[np.int64] | None = None

    def only(self, rows: npt.NDArray[np.int64]) -> Noise:
        """Return the noise of some rows, which is what it was.

        >>> noise, x = Noise(np.ones(5, dtype=np.float32), seed=1), torch.zeros(1, 4)
        >>> bool((noise.only(np.array([3])).added(x, np.array([0])) == noise.added(x, np.array([3]))).all())
        True
        """
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
