"""Examples held out of clients' training data: what a model is chosen by, so that the test set need not be.

Either a share of every client's examples, or one of k folds, as in cross-validation (Wei 2022, §5.3). They are taken
before anything else is: sizes, weights and statistics are those of what is left to train on, and all methods that run on
one population with one seed hold out the same examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedquilt.base.errors import SpecError
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.partition.partition import Partition


@dataclass(frozen=True)
class Validation:
    """What is held out: a `share` of every client's examples, or the `fold`-th of `folds` parts, counted from 0."""

    share: float | None = None
    folds: int | None = None
    fold: int | None = None

    @classmethod
    def asked(cls, share: float | None, folds: int | None, fold: int | None) -> Validation | None:
        """Return what the options of a run ask for, or nothing.

        >>> Validation.asked(0.1, None, None), Validation.asked(None, None, None)
        (Validation(share=0.1, folds=None, fold=None), None)
        >>> Validation.asked(None, 5, 5)
        Traceback (most recent call last):
        fedquilt.base.errors.SpecError: fold: must be below folds = 5, since folds are counted from 0; got 5
        """
        if share is not None and folds is not None:
            raise SpecError(f"validation = {share:g} and folds = {folds} both hold examples out: give one of them")
        if folds is None and fold is not None:
            raise SpecError(f"fold = {fold}: of how many? Say it with folds, as in folds = 5")
        if folds is not None and fold is None:
            raise SpecError(f"folds = {folds}: which one is held out? Say it with fold, from 0 to {folds - 1}")
        if folds is not None and fold is not None and fold >= folds:
            raise SpecError(f"fold: must be below folds = {folds}, since folds are counted from 0; got {fold}")
        return None if share is None and folds is None else cls(share, folds, fold)

    def hold_out(self, partition: Partition, seed: int) -> tuple[Partition, Indices]:
        """Return what is left to train on, and the examples that are held out, in the order of the training set.

        No client loses all of its examples: of several it keeps one, and a single one it always trains on. Apart from
        those, each example is in exactly one fold.

        >>> held = Partition.of([[0, 1, 2, 3, 4, 5], [6, 7], [8]])
        >>> left, out = Validation(folds=3, fold=0).hold_out(held, seed=1)
        >>> left.sizes.tolist(), len(out)
        ([4, 1, 1], 3)
        """
        examples, sizes = len(partition.indices), partition.sizes
        owner = np.repeat(np.arange(len(partition)), sizes)
        # Client by client, in random order within each: whatever is taken evenly from this is taken from all of them.
        order = np.lexsort((generator(seed, "validation").random(examples), owner))
        out = np.zeros(examples, dtype=bool)
        out[order] = self._evenly(examples)
        robbed = np.flatnonzero((sizes > 0) & (np.bincount(owner[out], minlength=len(sizes)) == sizes))
        out[order[partition.offsets[robbed]]] = False
        rows = np.unique(partition.indices[out])
        if not len(rows):
            asked = f"validation = {self.share:g}" if self.folds is None else f"fold {self.fold} of {self.folds}"
            raise SpecError(f"{asked}: holds out no example of the {examples} that clients have; take a larger part")
        out |= np.isin(partition.indices, rows)  # what several clients hold is trained on by none of them
        left = np.bincount(owner[~out], minlength=len(sizes)).astype(np.int64)
        return partition.holding(partition.indices[~out], left), rows.astype(np.int64)

    def _evenly(self, examples: int) -> npt.NDArray[np.bool_]:
        """Say which of so many examples in a row are held out, evenly spread over the row."""
        if self.folds is not None:
            return np.asarray(np.arange(examples) % self.folds == self.fold)
        assert self.share is not None
        return np.asarray(np.diff(np.floor(self.share * np.arange(examples + 1) + 0.5)) > 0)
