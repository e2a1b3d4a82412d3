"""What tells two methods apart: as text, in a time that grows with what is stacked and no faster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedquilt.base.records import LONGEST, describe


@dataclass(frozen=True)
class Twice:
    """Holds what it wraps in two places, as a transform's two functions do."""

    init: Callable[..., Any]
    update: Callable[..., Any]


def stacked(levels: int, first: float = 0.0) -> Any:
    inner: Any = Twice(partial(print, first), partial(print, 1.0))
    for _ in range(levels):
        outer = inner

        def update(value: float, outer: Any = outer) -> Any:
            return outer.update(value)

        inner = Twice(partial(print, outer), update)
    return inner


def test_it_takes_no_longer_than_what_is_stacked() -> None:
    begun = time.perf_counter()
    text = describe(stacked(100))
    assert time.perf_counter() - begun < 5
    assert len(text) < 10 * LONGEST


def test_a_difference_far_inside_is_seen() -> None:
    assert describe(stacked(50)) == describe(stacked(50))
    assert describe(stacked(50)) != describe(stacked(50, first=0.5))
    assert describe(stacked(50)) != describe(stacked(51))


def test_one_value_held_twice_is_as_two_equal_ones() -> None:
    once = Twice(print, print)
    assert describe((once, once)) == describe((Twice(print, print), Twice(print, print)))


def test_a_function_that_calls_itself_is_described() -> None:
    def countdown(number: int) -> int:
        return number and countdown(number - 1)

    assert "countdown[itself]" in describe(countdown)
