"""The server's view of a run: what plan, merge, evaluation and the loop over rounds use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fedquilt.algorithm.algorithm import Algorithm, initial_state
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.state import RunState
from fedquilt.base.types import Indices
from fedquilt.compute.layout import Layout, ModelState, State
from fedquilt.compute.replica import Replica
from fedquilt.data.data import Data
from fedquilt.partition.population import Population
from fedquilt.round.evaluation import Evaluator
from fedquilt.simulate.simulation import Simulation


class FirstBroadcast(NamedTuple):
    """What the server sends before the first round besides the model, and the bytes that clients moved for it."""

    broadcast: State
    uploaded: int = 0
    downloaded: int = 0


NO_BROADCAST = FirstBroadcast({})


@dataclass(frozen=True, eq=False, kw_only=True)
class Server:
    """What a server knows of a run; nothing of what clients hold is in it.

    `data` has the test set and, to train on, the server's own examples alone. `test_sizes` is how many test examples of its
    own each client has (None: clients are not tested by themselves).
    """

    replica: Replica
    initial: ModelState
    algorithm: Algorithm
    seed: int
    data: Data
    population: Population
    test_sizes: Indices | None
    first: FirstBroadcast
    metrics: tuple[Metric, ...]
    simulation: Simulation

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates models on what the server has."""
        return Evaluator(self.replica, self.algorithm.loss, self.data, self.metrics, self.seed)

    @property
    def layout(self) -> Layout:
        """What stands where in the model's vector."""
        return self.replica.layout

    def start(self) -> RunState:
        """Return the state of a run before its first round."""
        return RunState.of(initial_state(self.algorithm, self.initial, self.first.broadcast))
