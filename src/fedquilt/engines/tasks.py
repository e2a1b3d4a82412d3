"""What a lane does at a time, and what it answers: plain values, whichever transport carries them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fedquilt.algorithm.updates import Answer, BlockUpdate, Cohort, Fault, PartialSum
from fedquilt.compute.layout import State
from fedquilt.round.evaluation import Counted, SplitName

Do = Literal["train", "evaluate clients", "evaluate"]


class Sums(NamedTuple):
    """What must be known to sum the updates of some of a cohort's clients: the cohort, and each client's planned weight."""

    cohort: Cohort
    weights: Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Task:
    """Work on one model: "train" clients, "evaluate clients" on the data they hold, or "evaluate" the model on a split.

    `client_states` is the clients' state from earlier rounds. Clients are trained in blocks of `block`, or, where it
    must be known which one is to blame, `alone`, one by one. Then they are trained in blocks again, since that decides the
    bits, with stand-ins for those who are `gone`: (index in the task, client) each. With `sums`, updates of several clients
    are answered as one sum.

    >>> task = Task("train", round=1, clients=[7, 4], slots=[0, 1], client_states=[None, None])
    >>> task.without(0).clients
    [4]
    """

    do: Do
    round: int = 0
    clients: Sequence[int] = ()
    slots: Sequence[int] = ()
    client_states: Sequence[State | None] = ()
    alone: bool = False
    gone: Sequence[tuple[int, int]] = ()
    split: SplitName = "test"
    rows: tuple[int, int] = (0, 0)
    block: int = 1
    sums: Sums | None = None

    @property
    def fills(self) -> bool:
        """Whether its answer holds models, which take room until they are released."""
        return self.do == "train"

    @property
    def single(self) -> bool:
        """Whether it is known which client is worked for at a time."""
        return self.alone or len(self.clients) == 1

    def without(self, slot: int) -> Task:
        """Return the task without the client in a slot."""
        out, before = list(self.slots).index(slot), {index for index, _ in self.gone}
        indices = [index for index in range(len(self.slots) + len(before)) if index not in before]
        gone = [*self.gone, (indices[out], self.clients[out])]
        rest = [index for index, other in enumerate(self.slots) if other != slot]
        clients, slots = [self.clients[index] for index in rest], [self.slots[index] for index in rest]
        return replace(
            self, clients=clients, slots=slots, client_states=[self.client_states[index] for index in rest], gone=gone
        )

    def only(self, place: int) -> Task:
        """Return the task of one of its clients, which is done alone, and answered for by itself."""
        part = slice(place, place + 1)
        clients, slots, client_states = self.clients[part], self.slots[part], self.client_states[part]
        return replace(self, clients=clients, slots=slots, client_states=client_states, alone=True, gone=(), sums=None)


TaskResult = Answer | Counted
"""What is answered for a client, a block of them, or rows of a split."""


@dataclass(frozen=True, eq=False)
class Reply:
    """The answer to a task: updates of a training, counts of an evaluation, faults; `error` if evaluating failed.

    Those of an evaluation are in the order of the task's clients.
    """

    results: Sequence[TaskResult]
    error: str | None = None


def answers(task: Task, reply: Reply) -> bool:
    """Say whether a reply is for the very clients of a task, each once: whoever carried it may have mixed something up.

    >>> task = Task("train", clients=[4], slots=[0], client_states=[None])
    >>> answers(task, Reply([Fault(4, 0, "late")])), answers(task, Reply([Fault(4, 9, "late")]))
    (True, False)
    """
    if task.do == "evaluate":
        return reply.error is not None or (len(reply.results) == 1 and isinstance(reply.results[0], Counted))
    if task.do == "evaluate clients":
        return reply.error is not None or (
            len(reply.results) == len(task.clients)
            and all(
                isinstance(result, Counted) or (isinstance(result, Fault) and result.client == client)
                for client, result in zip(task.clients, reply.results, strict=True)
            )
        )
    heard: list[tuple[int, int]] = []
    for result in reply.results:
        if isinstance(result, Counted):
            return False
        if isinstance(result, BlockUpdate | PartialSum):
            heard += zip(result.slots, result.clients, strict=True)
        else:
            heard.append((result.slot, result.client))
    return reply.error is None and sorted(heard) == sorted(zip(task.slots, task.clients, strict=True))
