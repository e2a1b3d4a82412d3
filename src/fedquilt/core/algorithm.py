"""A federated learning algorithm: a record of parts, in the order in which data flows through a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedquilt.core.describe import describe
from fedquilt.core.exchange import Exchange
from fedquilt.core.loss import Loss
from fedquilt.core.penalty import Penalty
from fedquilt.core.transform import State, Transform
from fedquilt.errors import SpecError

if TYPE_CHECKING:
    from fedquilt.core.client import ClientUpdate
    from fedquilt.core.course import Course
    from fedquilt.core.own import Personalise

Indices = npt.NDArray[np.int64]

Select = Callable[[Indices, np.random.Generator], Indices]
"""(sizes of the clients to choose from, generator) -> the cohort's clients."""


class Batches(NamedTuple):
    """The examples of one client's local training: batch i is `order[cuts[i]:cuts[i + 1]]`."""

    order: Indices
    cuts: Indices


Sample = Callable[[int, np.random.Generator, int], Batches]
"""(a client's number of examples, generator, round) -> its batches."""

Until = Callable[[list[float]], bool]
"""The mean loss of each pass so far -> whether local training has converged."""

Importance = Callable[[Tensor, int, State], Tensor]
"""(labels of all of a client's data, number of classes, what was announced) -> the weight of an example of each class."""

Weigh = Callable[[int], float]
"""A client's number of examples -> the weight of its update."""


class Cohort(NamedTuple):
    """What is known of a round's cohort before it answers."""

    parameters: int
    weight: float
    clients: int
    population: int


class Fold(Protocol):
    """Takes in updates one at a time, in any order, and ends with one vector."""

    def add(self, update: ClientUpdate) -> None:
        """Take in one update. Its tensors may be overwritten after the call."""

    def finish(self) -> Tensor | None:
        """Return the result, or nothing if no weight was reported."""


Reduce = Callable[[Cohort], Fold]
"""The cohort -> an empty fold."""


@dataclass(frozen=True)
class Algorithm:
    """What a federated method does in a round.

    `delta` always means after − before. The server treats −delta as a gradient, so that the same descent serves clients
    and server. Beside the main line:

    - `until` ends local training when it has converged; `penalties` are added to the loss; `importance` weighs examples
      by their class; `exchanges` carry what server and clients tell each other besides the model;
    - `keep_local_state` lets a client's optimiser state live on to its next round; `pooled` trains on the union of all
      clients' data as one client (the centralised baseline);
    - `after` is what the server trains with, after its step, on the `server_share` of the data that it keeps to itself;
    - `own` asks for accuracy on every client's own data: on the share of it that is held out, or, with 0, on all of it;
      `personalise` is how a client makes the model its own before that;
    - `course` is the course of a round where it is not the usual one, `last_round` where training ends by itself, and
      without `sends` nothing is sent at all;
    - `claims` says which wrapper set which part, and `wrapped` with which values wrappers were applied.
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
    after: Algorithm | None = None
    until: Until | None = None
    penalties: tuple[Penalty, ...] = ()
    importance: Importance | None = None
    exchanges: tuple[Exchange, ...] = ()
    keep_local_state: bool = False
    pooled: bool = False
    server_share: float = 0.0
    own: float | None = None
    personalise: Personalise | None = None
    course: Course | None = None
    last_round: int | None = None
    sends: bool = True
    claims: tuple[tuple[str, str], ...] = ()
    wrapped: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


WORDS = {
    "select": "who takes part",
    "sample": "a client's batches",
    "loss": "the loss",
    "weigh": "how much a client counts",
    "reduce": "how updates become one",
    "server": "the server's optimiser",
    "after": "training at the server",
    "importance": "the weights of examples",
    "pooled": "whether data are pooled",
    "server_share": "the server's share of the data",
    "own": "the share of clients' data to test on",
    "personalise": "how clients make the model their own",
    "course": "the course of a round",
}
"""What a part is, for those who do not know its name."""


def claim(algorithm: Algorithm, by: str, **parts: Any) -> Algorithm:
    """Replace parts in a wrapper's name; two wrappers that set one part to different values are an error.

    >>> from fedquilt.methods import fed_avg
    >>> once = claim(fed_avg(), "first", pooled=True)
    >>> claim(once, "second", pooled=True).pooled
    True
    >>> claim(once, "second", pooled=False)
    Traceback (most recent call last):
    fedquilt.errors.SpecError: first and second both set `pooled` (whether data are pooled), to different values: take one
    of them
    """
    claimed = dict(algorithm.claims)
    for part, value in parts.items():
        if part in claimed and describe(getattr(algorithm, part)) != describe(value):
            words = f" ({WORDS[part]})" if part in WORDS else ""
            raise SpecError(f"{claimed[part]} and {by} both set `{part}`{words}, to different values: take one of them")
        claimed.setdefault(part, by)
    return replace(algorithm, claims=tuple(claimed.items()), **parts)


def applied_once(algorithm: Algorithm, wrapper: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Apply a wrapper, or return the method as it is if it was applied before with the same values.

    A second application with other values is an error: whether the values add up, or one replaces the other, would depend
    on the wrapper.

    >>> from fedquilt.methods import fed_avg, fed_prox
    >>> once = fed_prox(fed_avg(), mu=0.1)
    >>> fed_prox(once, mu=0.1) is once
    True
    >>> fed_prox(once, mu=0.2)
    Traceback (most recent call last):
    fedquilt.errors.SpecError: fed_prox is applied twice, with different values (mu = 0.1 and mu = 0.2): take one of them
    """
    name, values = wrapper.__name__, {key: describe(value) for key, value in arguments.items()}
    before = dict(algorithm.wrapped).get(name)
    if before is None:
        after = wrapper(algorithm, **arguments)
        return after if after is algorithm else replace(after, wrapped=(*after.wrapped, (name, tuple(values.items()))))
    other = [(key, value) for key, value in before if value != values.get(key)]
    if other:
        first, second = (", ".join(f"{key} = {of[key]}" for key, _ in other) for of in (dict(before), values))
        raise SpecError(f"{name} is applied twice, with different values ({first} and {second}): take one of them")
    return algorithm


def check_consistent(algorithm: Algorithm) -> None:
    """Refuse an algorithm whose parts cannot work together, whatever the order in which they were put together."""
    remembering = [exchange.name for exchange in algorithm.exchanges if exchange.remembers]
    remembering += ["keep_momentum"] if algorithm.keep_local_state else []
    if remembering and getattr(algorithm.select, "repeats", False):
        by = dict(algorithm.claims).get("select", "the method's selection")
        raise SpecError(
            f"{by} draws a client several times a round, but {' and '.join(remembering)} keeps something for it from "
            f"round to round: set distinct = true for {by}"
        )


def add_exchange(algorithm: Algorithm, exchange: Exchange) -> Algorithm:
    """Add an exchange; a second one of the same name must be the same.

    >>> from fedquilt.methods import fed_avg
    >>> once = add_exchange(fed_avg(), Exchange("target"))
    >>> add_exchange(once, Exchange("target")) is once
    True
    """
    for before in algorithm.exchanges:
        if before.name == exchange.name:
            if describe(before) != describe(exchange):
                raise SpecError(f"{exchange.name} is applied twice, with different values: take one of them")
            return algorithm
    return replace(algorithm, exchanges=(*algorithm.exchanges, exchange))
