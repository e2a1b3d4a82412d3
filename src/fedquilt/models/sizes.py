"""Sizes of a model that the data know: how many values an example has, and how many classes there are.

A spec hands a model its data, so that neither needs a key. From Python, sizes are given, or taken from `data=…`; without
either they are those of the model's paper.
"""

from __future__ import annotations

from fedquilt.base.errors import SpecError
from fedquilt.data.data import Data


def inputs_of(data: Data | None, given: int | None, published: int) -> int:
    """Return how many values an example has once it is ready for the model, or refuse another number.

    >>> from fedquilt import digits
    >>> inputs_of(digits(), None, published=784), inputs_of(None, None, published=784), inputs_of(None, 2, published=784)
    (64, 784, 2)
    >>> inputs_of(digits(), 784, published=784)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: inputs: is 784, but an example of digits has 64 values; remove this key
    """
    if data is None:
        return published if given is None else given
    found = data.inputs(
        data.train if len(data.train) else data.test, range(1)
    ).numel()  # a server may have a test set alone
    if given not in (None, found):
        raise SpecError(f"inputs: is {given}, but an example of {data.name} has {found} values; remove this key")
    return found


def classes_of(data: Data | None, given: int | None, published: int, key: str = "classes") -> int:
    """Return how many scores a model has: one per class or, where targets are numbers, one per number.

    More classes than the data have may be wanted, for weights from elsewhere or a paper's vocabulary. Fewer are refused.

    >>> from fedquilt import digits
    >>> data = digits()
    >>> classes_of(data, None, published=10), classes_of(data, 12, published=10), classes_of(None, None, published=2)
    (10, 12, 2)
    >>> classes_of(digits(), 9, published=10)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: classes: is 9, but digits has 10 classes; remove this key
    """
    if data is None:
        return published if given is None else given
    y = data.train.y
    found = data.classes or (y.shape[1] if y.dim() > 1 else 1)
    if given is not None and (given < found or (given > found and not data.classes)):
        what = "classes" if data.classes else "number(s) as an example's target"
        raise SpecError(f"{key}: is {given}, but {data.name} has {found} {what}; remove this key")
    return found if given is None else given
