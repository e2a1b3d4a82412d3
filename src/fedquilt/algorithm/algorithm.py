"""A federated learning algorithm: a record of parts, in the order in which data flows through a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from fedquilt.algorithm.exchange import Exchange
from fedquilt.algorithm.loss import Loss
from fedquilt.algorithm.penalty import Penalty
from fedquilt.algorithm.state import RunState, ServerState
from fedquilt.algorithm.transform import Transform
from fedquilt.algorithm.updates import Reduce
from fedquilt.base.errors import SpecError
from fedquilt.base.records import Applied, describe
from fedquilt.base.types import Indices
from fedquilt.compute.layout import ModelState, State

Select = Callable[[Indices, np.random.Generator], Indices]
"""(sizes of the clients to choose from, generator) -> the cohort's clients."""


@runtime_checkable
class Repeating(Protocol):
    """A way to choose clients that says whether it may choose one several times in a round; others never do."""

    @property
    def repeats(self) -> bool:
        """Whether a client may be drawn several times in a round."""


class Batches(NamedTuple):
    """The examples of one client's local training: batch i is `order[cuts[i]:cuts[i + 1]]`."""

    order: Indices
    cuts: Indices


Sample = Callable[[int, np.random.Generator, int], Batches]
"""(a client's number of examples, generator, round) -> its batches."""


@runtime_checkable
class Shortened(Protocol):
    """A way to sample that may leave some of a client's examples out of a pass; others pass over all of them."""

    def a_pass(self, examples: int, round_: int) -> int:
        """Return how many of a client's examples a pass trains on."""


@runtime_checkable
class Permuting(Protocol):
    """A way to sample that draws nothing but permutations of a client's examples: those of many clients come at once."""

    def permutations(self, examples: int, round_: int) -> int:
        """Return how many permutations are drawn for a client with that many examples."""

    def batches(self, examples: int, drawn: Sequence[Indices], round_: int) -> Batches:
        """Make a client's batches of its permutations."""


RoundFunction = Callable[[Any, RunState], Any]
"""(what a round works with, the run's state) -> what ends the round; see `fedquilt.round.round_function`."""

Until = Callable[[list[float]], bool]
"""The mean loss of each pass so far -> whether local training has converged."""

Importance = Callable[[Tensor, int, State], Tensor]
"""(labels of all of a client's data, number of classes, the broadcast) -> the weight of an example of each class."""

Weigh = Callable[[int], float]
"""A client's number of examples -> the weight of its update."""


@dataclass(frozen=True)
class Course:
    """How training goes where it does not go the usual way.

    - `round` is the method's own round function (`fedquilt.round.round_function`); unset, every group of clients does one
      round;
    - `needs_rounds` is how many rounds a run must have for the round function to make a difference;
    - `last_round` is where training ends by itself, `until` what ends a client's local training when it has converged;
    - `pooled` trains on the union of all clients' data as one client (the centralised baseline);
    - without `sends` nothing is sent at all.
    """

    round: RoundFunction | None = None
    needs_rounds: int = 0
    last_round: int | None = None
    until: Until | None = None
    pooled: bool = False
    sends: bool = True


@dataclass(frozen=True)
class Personalise:
    """How a client gets a personal model: by training the run's model on its data, or from its client state.

    `by` is the algorithm whose local training is used; `client_state` names the exchange whose client state is the model.
    """

    by: Algorithm | None = None
    client_state: str | None = None


@dataclass(frozen=True)
class PerClient:
    """What is measured at every client: accuracy on the share of its data that is held out, or with 0 on all of it.

    `personalise` is how a client gets a personal model before that.
    """

    share: float | None = None
    personalise: Personalise | None = None


@dataclass(frozen=True)
class ServerTraining:
    """What the server trains with after its step, on the share of the data that it holds."""

    algorithm: Algorithm | None = None
    share: float = 0.0


@dataclass(frozen=True)
class Algorithm:
    """What a federated method does in a round, in the order in which data flows through it.

    `delta` always means after − before. The server treats −delta as a gradient, so that the same descent serves clients
    and server. Beside the main line: `importance` weighs examples by their class; `penalties` are added to the loss;
    `exchanges` carry what server and clients send each other besides the model; `applied` is written by wrappers.
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
    after: ServerTraining = ServerTraining()
    importance: Importance | None = None
    penalties: tuple[Penalty, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    per_client: PerClient = PerClient()
    course: Course = Course()
    applied: Applied = Applied()  # noqa: RUF009 - it is frozen


WORDS = {
    "select": "who takes part",
    "sample": "a client's batches",
    "loss": "the loss",
    "weigh": "how much a client counts",
    "reduce": "how updates become one",
    "server": "the server's optimiser",
    "after.algorithm": "training at the server",
    "after.share": "the server's share of the data",
    "importance": "the weights of examples",
    "per_client.share": "the share of clients' data to test on",
    "per_client.personalise": "how clients personalise the model",
    "course.pooled": "whether data are pooled",
    "course.round": "the round function",
}
"""What a part is, for those who do not know its name."""


def claim(algorithm: Algorithm, by: str, **parts: Any) -> Algorithm:
    """Replace parts in a wrapper's name; two wrappers that set one part to different values are an error.

    A part that is a record (`course`, `per_client`, `after`) is given as a table of those of its fields that are set.

    >>> from fedquilt.methods import fed_avg
    >>> once = claim(fed_avg(), "first", course={"pooled": True})
    >>> claim(once, "second", course={"pooled": True}).course.pooled
    True
    >>> claim(once, "second", course={"pooled": False})
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: first and second both set `course.pooled` (whether data are pooled), to different
    values: use one of them
    """
    claimed = dict(algorithm.applied.claims)
    for part, value in parts.items():
        before = getattr(algorithm, part)
        given = value.items() if isinstance(value, dict) else ()
        fields = {f"{part}.{name}": (getattr(before, name), new) for name, new in given}
        for name, (old, new) in (fields or {part: (before, value)}).items():
            if name in claimed and describe(old) != describe(new):
                words = f" ({WORDS[name]})" if name in WORDS else ""
                raise SpecError(
                    f"{claimed[name]} and {by} both set `{name}`{words}, to different values: use one of them"
                )
            claimed.setdefault(name, by)
        parts[part] = replace(before, **value) if fields else value
    return replace(algorithm, applied=replace(algorithm.applied, claims=tuple(claimed.items())), **parts)


def check_consistent(algorithm: Algorithm) -> None:
    """Refuse an algorithm whose parts cannot work together, whatever the order in which they were put together."""
    remembering = [exchange.name for exchange in algorithm.exchanges if exchange.remembers]
    remembering += ["keep_momentum"] if algorithm.local.keep else []
    if remembering and isinstance(algorithm.select, Repeating) and algorithm.select.repeats:
        by = dict(algorithm.applied.claims).get("select", "the method's selection")
        raise SpecError(
            f"{by} draws a client several times per round, but {' and '.join(remembering)} keeps client state from "
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
                raise SpecError(f"{exchange.name} is applied twice, with different values: use one of them")
            return algorithm
    return replace(algorithm, exchanges=(*algorithm.exchanges, exchange))


def initial_state(algorithm: Algorithm, model: ModelState, broadcast: State | None = None) -> ServerState:
    """Return the state before the first round."""
    return ServerState(0, model, algorithm.server.init({"model": model.vector}), broadcast or {})
