"""What a run ends with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedquilt.core.federation import Federation
from fedquilt.core.params import ModelState
from fedquilt.core.state import RunState
from fedquilt.experiment.fingerprint import digest
from fedquilt.metrics.curves import History
from fedquilt.progress import counted


@dataclass(frozen=True, repr=False)
class Result:
    """A trained model and how it came about.

    A method that ends with several models, one for each group of clients, has them in `models`; `model` and `state` are
    then those of the first group. `run` is everything that the run carried: groups, server states, what clients keep.
    """

    history: History
    model: nn.Module
    state: ModelState
    digest: str
    interrupted: bool
    models: tuple[nn.Module, ...]
    run: RunState

    def __repr__(self) -> str:
        """Say how it went, not all that is in it."""
        newest = self.history.newest or {}
        name = next((name for name in ("accuracy", "loss") if newest.get(name) is not None), None)
        score = "" if name is None else f", {name} {newest[name]:.4f}"
        return f"Result({counted(self.run.round, 'round')}{score}, digest {self.digest[:12]}…)"


def result_of(federation: Federation, history: History, run: RunState, interrupted: bool) -> Result:
    """Return what a run ends with."""
    trained = tuple(federation.bench.finished(group.state.model) for group in run.groups)
    return Result(history, trained[0], run.groups[0].state.model, digest(federation, run), interrupted, trained, run)
