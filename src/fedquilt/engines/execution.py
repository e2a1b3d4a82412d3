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
from fedquilt.round.rehearsal import Rehearsal
from fedquilt.round.server import Server
from fedquilt.round.site import Site
from fedquilt.round.views import View, placed, with_kernels

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

    def _kernels(self, view: Federation | Server | Site) -> tuple[str, ...]:
        """Return the kernels for the model's layers, if compiling means those."""
        return kernels_of(view.replica.module) if self.block == 1 and self.placement == CPU else ()

    def _trouble(self, view: Federation | Server | Site) -> str | None:
        kernels = self._kernels(view)
        return build.trouble(*kernels) if kernels else trouble()

    def require(self, view: Federation | Server | Site) -> None:
        """Refuse a device that is not here, and a precision that the model cannot be trained in here.

        Which layers can be computed in bfloat16 depends on the processor: oneDNN has no such LSTM without AVX-512.
        """
        require(self.placement)
        exact = replace(self.placement, precision="float32")
        if self.placement == exact:
            return
        failure = _rehearsal_at(view, self.placement).failure()
        # Where the model cannot be trained in float32 either, the precision is not to blame.
        if failure is not None and _rehearsal_at(view, exact).runs():
            why = reason_of(failure).rstrip(".")
            raise SpecError(
                f'precision = "{self.placement.precision}": this model cannot be trained in it here: {why}; '
                'use precision = "float32"'
            )

    def settled(self, view: Federation | Server, rounds: int) -> Execution:
        """Decide what "auto" is for a run, and fall back to eager code, with a warning, where nothing can be compiled."""
        self.require(view)
        if self.compute == "auto":
            worth = kernels_pay if self._kernels(view) else pays
            return replace(self, compute="compiled" if worth(view, rounds) else "eager")
        reason = self._trouble(view) if self.compute == "compiled" else None
        if reason is not None:
            warnings.warn(
                f"cannot compile on this machine; training runs eagerly: {reason}", RuntimeWarning, stacklevel=2
            )
            return replace(self, compute="eager")
        return self

    def placed(self, view: View) -> View:
        """Return a view of a run with its model on the device, if it can be trained there, and its layers as computed."""
        self.require(view)
        there = placed(view, self.placement)
        return with_kernels(there) if self.compute == "compiled" and self._kernels(view) else there

    def program(self, view: Federation | Site) -> Program | None:
        """Return the program that trains blocks of clients, or refuse with the reason.

        There is none where clients are trained step by step.
        """
        compiled = self.compute == "compiled"
        if compiled and self._trouble(view) is not None:
            raise FedquiltError(f"this run is compiled, but this machine cannot compile: {self._trouble(view)}")
        if self.block == 1 and (not compiled or self._kernels(view)):
            return None
        reason = unmappable(view.replica.module, view.algorithm)
        if reason is not None:
            what = f"vectorised (blocks of {self.block})" if self.block > 1 else "compiled"
            raise FedquiltError(f'{what} training is not possible here: {reason}; use compute = "eager" and processes')
        if compiled:
            keep_apart()  # again: the environment may have changed since it was tried
        return Program(view.replica, view.algorithm, view.agreement.largest, self.block, compiled)

    def blocks(self, planned: Plan) -> list[list[int]]:
        """Cut a plan's slots into blocks, the largest clients first."""
        slots_asked = np.asarray(planned.slots, dtype=np.int64)
        slots = slots_asked[np.argsort(-planned.sizes[slots_asked - planned.first_slot], kind="stable")].tolist()
        return [slots[first : first + self.block] for first in range(0, len(slots), self.block)]


def _rehearsal_at(view: Federation | Server | Site, placement: Placement) -> Rehearsal:
    return replace(Rehearsal.of(view), replica=view.replica.placed(placement))
