"""How local training is executed: one client at a time or in blocks, eagerly or compiled.

Clients are put into blocks by the plan, never by the number of workers, because the last bits of a batched product may
depend on its batch. Compiled or mapped code may differ from eager code in the last bits; each is bit-identical to itself.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedquilt.base.errors import FedquiltError, SpecError, reason_of
from fedquilt.compute.device import CPU, Placement, require
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.layers import kernels_of
from fedquilt.engines.auto import keep_apart, kernels_pay, pays, trouble
from fedquilt.round.block import Program, unmappable
from fedquilt.round.federation import Federation
from fedquilt.round.plan import Plan

Compute = Literal["auto", "eager", "compiled"]


@dataclass(frozen=True)
class Execution:
    """How clients are trained: `block` at once, eagerly or compiled, and where.

    A model with layers that have kernels (`fedquilt.compute.kernels`) is compiled by those, for one client
    at a time; every other model's whole step, as a program.
    """

    block: int = 1
    compute: Compute = "eager"
    placement: Placement = CPU

    def _kernels(self, federation: Federation) -> tuple[str, ...]:
        """Return the kernels for the model's layers, if compiling means those."""
        return kernels_of(federation.replica.module) if self.block == 1 and self.placement == CPU else ()

    def _trouble(self, federation: Federation) -> str | None:
        kernels = self._kernels(federation)
        return build.trouble(*kernels) if kernels else trouble()

    def require(self, federation: Federation) -> None:
        """Refuse a device that is not here, and a precision that the model cannot be trained in here.

        Which layers can be computed in bfloat16 depends on the processor: oneDNN has no such LSTM without AVX-512.
        """
        require(self.placement)
        exact = replace(self.placement, precision="float32")
        if self.placement == exact:
            return
        failure = federation.placed(self.placement).rehearsal.failure()
        # Where the model cannot be trained in float32 either, the precision is not to blame.
        if failure is not None and federation.placed(exact).rehearsal.runs():
            why = reason_of(failure).rstrip(".")
            raise SpecError(
                f'precision = "{self.placement.precision}": this model cannot be trained in it here: {why}; '
                'use precision = "float32"'
            )

    def settled(self, federation: Federation, rounds: int) -> Execution:
        """Decide what "auto" is for a run, and fall back to eager code, with a warning, where nothing can be compiled."""
        self.require(federation)
        if self.compute == "auto":
            worth = kernels_pay if self._kernels(federation) else pays
            return replace(self, compute="compiled" if worth(federation, rounds) else "eager")
        reason = self._trouble(federation) if self.compute == "compiled" else None
        if reason is not None:
            warnings.warn(
                f"cannot compile on this machine; training runs eagerly: {reason}", RuntimeWarning, stacklevel=2
            )
            return replace(self, compute="eager")
        return self

    def placed(self, federation: Federation) -> Federation:
        """Return the federation with its model on the device, if it can be trained there, and its layers as computed."""
        self.require(federation)
        placed = federation.placed(self.placement)
        return placed.with_kernels() if self.compute == "compiled" and self._kernels(federation) else placed

    def program(self, federation: Federation) -> Program | None:
        """Return the program that trains blocks of a federation's clients, or refuse with the reason.

        There is none where clients are trained step by step.
        """
        compiled = self.compute == "compiled"
        if compiled and self._trouble(federation) is not None:
            raise FedquiltError(f"this run is compiled, but this machine cannot compile: {self._trouble(federation)}")
        if self.block == 1 and (not compiled or self._kernels(federation)):
            return None
        reason = unmappable(federation.replica.module, federation.algorithm)
        if reason is not None:
            what = f"vectorised (blocks of {self.block})" if self.block > 1 else "compiled"
            raise FedquiltError(f'{what} training is not possible here: {reason}; use compute = "eager" and processes')
        if compiled:
            keep_apart()  # again: the environment may have changed since it was tried
        largest = int(federation.population.sizes.max())
        return Program(federation.replica, federation.algorithm, largest, self.block, compiled)

    def blocks(self, planned: Plan) -> list[list[int]]:
        """Cut a plan's slots into blocks, the largest clients first."""
        slots_asked = np.asarray(planned.slots, dtype=np.int64)
        slots = slots_asked[np.argsort(-planned.sizes[slots_asked - planned.first_slot], kind="stable")].tolist()
        return [slots[first : first + self.block] for first in range(0, len(slots), self.block)]
