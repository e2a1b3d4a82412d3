"""An engine has one job: run the clients of a plan and yield the results. The driver is given one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from fedquilt.algorithm.state import ClientStore, ServerState
from fedquilt.algorithm.updates import Answer, Fault
from fedquilt.compute.layout import ModelState
from fedquilt.round.evaluation import Counted, Evaluation, SplitName
from fedquilt.round.federation import Federation
from fedquilt.round.plan import Plan

T = TypeVar("T")

Pending = Callable[[], T]
"""Something that was begun: calling it waits for the end and returns what came out."""


Measured = Counted | Fault
"""The result of a client's test, or its fault."""


class Session(Protocol):
    """An engine at work on one federation.

    An engine with workers begins what it is asked for at once and goes on with it meanwhile, in the order of asking.
    """

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Yield a result for every slot of the plan that answers (`planned.slots`), in any order; blocks count for all.

        Of several plans under way, the first one's results are asked for first.
        """

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        """Measure loss and accuracy on a whole split."""

    def evaluate_clients(
        self, state: ServerState, clients: Sequence[int], store: ClientStore
    ) -> Pending[list[Measured]]:
        """Run the per-client test of these clients, in the order given."""


@runtime_checkable
class Recorded(Protocol):
    """A session that has something to record with the run, such as the machines of a cluster."""

    @property
    def about(self) -> Mapping[str, Any]:
        """What to record."""


class Engine(Protocol):
    """How clients are executed."""

    def open(self, federation: Federation) -> AbstractContextManager[Session]:
        """Make ready to run a federation; leaving the context ends whatever was started."""


@runtime_checkable
class Settling(Protocol):
    """An engine that decides something for a run that its result depends on."""

    @property
    def compute(self) -> str:
        """How local steps are executed."""

    @property
    def where(self) -> str:
        """What else decides the last bits: the device, the precision, and how many clients are trained at once."""

    def settled(self, federation: Federation, rounds: int) -> Engine:
        """Return the engine with everything decided."""

    def placed(self, federation: Federation) -> Federation:
        """Return the federation with its model where the engine computes."""

    def computing(self, compute: str) -> Engine:
        """Return the engine with what was decided before."""


def settled(engine: Engine, federation: Federation, rounds: int) -> Engine:
    """Decide what an engine leaves open and a run's result depends on."""
    return engine.settled(federation, rounds) if isinstance(engine, Settling) else engine
