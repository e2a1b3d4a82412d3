"""Which wrappers were applied to a method, and with which values: one that is applied twice must agree with itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedquilt.base.describe import describe
from fedquilt.base.errors import SpecError


@dataclass(frozen=True)
class Applied:
    """What wrappers did to a method: `claims` says which of them set which part, `wrappers` which values each was given."""

    claims: tuple[tuple[str, str], ...] = ()
    wrappers: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


def applied_once(algorithm: Any, wrapper: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Apply a wrapper, or return the method as it is if it was applied before with the same values.

    A second application with other values is an error: whether the values add up, or one replaces the other, would depend
    on the wrapper.

    >>> from fedquilt.methods import fed_avg, fed_prox
    >>> once = fed_prox(fed_avg(), mu=0.1)
    >>> fed_prox(once, mu=0.1) is once
    True
    >>> fed_prox(once, mu=0.2)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: fed_prox is applied twice, with different values (mu = 0.1 and mu = 0.2): use one
    of them
    """
    name, values = wrapper.__name__, {key: describe(value) for key, value in arguments.items()}
    before = dict(algorithm.applied.wrappers).get(name)
    if before is None:
        after = wrapper(algorithm, **arguments)
        return after if after is algorithm else _noted(after, name, values)
    other = [(key, value) for key, value in before if value != values.get(key)]
    if other:
        first, second = (", ".join(f"{key} = {of[key]}" for key, _ in other) for of in (dict(before), values))
        raise SpecError(f"{name} is applied twice, with different values ({first} and {second}): use one of them")
    return algorithm


def _noted(algorithm: Any, name: str, values: dict[str, str]) -> Any:
    before: Applied = algorithm.applied
    return replace(algorithm, applied=replace(before, wrappers=(*before.wrappers, (name, tuple(values.items())))))
