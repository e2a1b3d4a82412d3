"""An engine has one job: run the clients of a plan and yield the results. The driver is given one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from fedquilt.core.client import ClientUpdate, Fault
from fedquilt.core.evaluation import Evaluation
from fedquilt.core.federation import Federation, SplitName
from fedquilt.core.params import ModelState
from fedquilt.core.round import Plan
from fedquilt.core.state import ClientStore


class Session(Protocol):
    """An engine at work on one federation."""

    def run(self, planned: Plan, model: ModelState, store: ClientStore) -> Iterator[ClientUpdate | Fault]:
        """Yield one result for every slot of the plan, in any order."""

    def evaluate(self, model: ModelState, split: SplitName) -> Evaluation:
        """Return loss and accuracy on a whole split."""


class Engine(Protocol):
    """How clients are executed."""

    def open(self, federation: Federation) -> AbstractContextManager[Session]:
        """Make ready to run a federation; leaving the context ends whatever was started."""
