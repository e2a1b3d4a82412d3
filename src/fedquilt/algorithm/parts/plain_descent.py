"""Which local transforms are gradient descent in a few numbers, so that a kernel can take the steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from fedquilt.algorithm.parts.descent import _accumulate, _add_weight_decay, _descend, _descended
from fedquilt.algorithm.parts.directions import _add_given, _pull
from fedquilt.algorithm.transform import Transform, links


@dataclass(frozen=True)
class PlainDescent:
    """v ← momentum·v + g + decay·w + pull·(w − start) + what the exchanges of `given` give; w ← w − rate·v."""

    momentum: float = 0.0
    decay: float = 0.0
    pull: float = 0.0
    given: tuple[str, ...] = ()


def plain_descent(local: Transform) -> PlainDescent | None:
    """Return a local transform in numbers, or None if it does anything else.

    >>> from fedquilt.algorithm.parts.descent import sgd
    >>> plain_descent(sgd(0.1, momentum=0.9))
    PlainDescent(momentum=0.9, decay=0.0, pull=0.0, given=())
    >>> plain_descent(sgd(0.1, momentum=0.9, nesterov=True)) is None
    True
    """
    *before, last = links(local)
    if last.update is not _descend or last.fused is not _descended or local.normals or local.keep:
        return None
    found = PlainDescent()
    for link in before:
        function, values = _called(link)
        if found.momentum or link.fused is not None:  # what is added after momentum is another method
            return None
        if function is _add_weight_decay:
            found = PlainDescent(0.0, found.decay + values[0], found.pull, found.given)
        elif function is _pull:
            found = PlainDescent(0.0, found.decay, found.pull + values[0], found.given)
        elif function is _add_given:
            found = PlainDescent(0.0, found.decay, found.pull, (*found.given, values[0]))
        elif function is _accumulate and not values[1]:
            found = PlainDescent(values[0], found.decay, found.pull, found.given)
        else:
            return None
    return found


def _called(link: Transform) -> tuple[Any, tuple[Any, ...]]:
    update = link.update
    return (update.func, update.args) if isinstance(update, partial) and not update.keywords else (update, ())
