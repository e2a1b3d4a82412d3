"""What engines that train clients here, in this process or in workers, have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from fedquilt.engines.execution import Execution
from fedquilt.round.federation import Federation


@dataclass(frozen=True)
class Executing:
    """An engine whose result depends on how clients are executed; see `fedquilt.round.session.Settling`."""

    execution: Execution

    @property
    def compute(self) -> str:
        """How local steps are executed."""
        return self.execution.compute

    @property
    def where(self) -> str:
        """Where local steps are executed, how exactly, and for how many clients at once, where that decides bits."""
        decides = self.execution.block > 1 and self.execution.compute != "fused"
        blocks = f", blocks of {self.execution.block}" if decides else ""
        return f"{self.execution.placement.device}, {self.execution.placement.precision}{blocks}"

    def settled(self, federation: Federation, rounds: int) -> Self:
        """Decide how the clients of a run are trained."""
        return replace(self, execution=self.execution.settled(federation, rounds))

    def placed(self, federation: Federation) -> Federation:
        """Return the federation with its model on the engine's device."""
        return self.execution.placed(federation)

    def computing(self, compute: str) -> Self:
        """Return the engine with what was decided before."""
        return replace(self, execution=replace(self.execution, compute=compute))  # type: ignore[arg-type]

    def _arguments(self) -> dict[str, Any]:
        """Return what a spec's `[engine]` says of the execution."""
        execution = self.execution
        about = {
            "compute": execution.compute,
            "precision": execution.placement.precision,
            "device": execution.placement.device,
        }
        return about if execution.block == 1 else {"block": execution.block} | about
