"""How local training is executed: one client at a time or in blocks, eagerly or compiled.

Clients are put into blocks by the plan, never by the number of workers, because the last bits of a batched product may
depend on its batch. Compiled or mapped code may differ from eager code in the last bits; each is bit-identical to itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedquilt.base.errors import FedquiltError, SpecError, reason_of
from fedquilt.base.types import Indices
from fedquilt.compute.device import CPU, Placement, require
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.stack import KERNEL
from fedquilt.engines.compiling import keep_apart, pays, trouble
from fedquilt.round.block import BlockProgram, Program, unmappable
from fedquilt.round.federation import Federation
from fedquilt.round.fused import FusedProgram, unfusable
from fedquilt.round.plan import Plan
from fedquilt.round.rehearsal import Rehearsal
from fedquilt.round.server import Server
from fedquilt.round.site import Site
from fedquilt.round.views import View, placed, with_kernels

Compute = Literal["auto", "eager", "compiled", "fused"]


@dataclass(frozen=True)
class Execution:
    """How clients are trained: `block` at once, eagerly or compiled, and where.

    "compiled": a model with layers that have kernels (`fedquilt.compute.kernels`) is compiled by those, for one client at a
    time; every other model's whole step, as a program. "fused": all steps of a client are taken by the kernel for stacks of
    linear layers.
    """

    block: int = 1
    compute: Compute = "eager"
    placement: Placement = CPU

    def _kernels(self, view: Federation | Server | Site) -> tuple[str, ...]:
        """Return the kernels for the model's layers, if compiling means those."""
        return view.replica.kernels if self.block == 1 and self.placement == CPU else ()

    def _trouble(self, view: Federation | Server | Site) -> str | None:
        """Say why what is to be compiled cannot be, if so."""
        if self.compute == "fused":
            return build.trouble(KERNEL)
        kernels = self._kernels(view)
        return build.trouble(*kernels) if kernels else trouble()

    def whole(self, view: Federation | Server | Site) -> bool:
        """Say whether the whole local step is compiled, for any number of clients at once."""
        return self.compute == "compiled" and not self._kernels(view)

    def unfusable(self, view: Federation | Server | Site) -> str | None:
        """Say why the kernel for stacks of linear layers cannot train a run's clients, if so."""
        split = Rehearsal.of(view).stand_in
        return unfusable(view.replica.module, view.algorithm, view.data, split, self.placement)

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
            return replace(self, compute=self.decided(view, rounds)[0])
        reason = self.unfusable(view) if self.compute == "fused" else None
        if reason is not None:
            warnings.warn(f'compute = "fused": training runs eagerly: {reason}', RuntimeWarning, stacklevel=2)
            return replace(self, compute="eager")
        reason = None if self.compute == "eager" else self._trouble(view)
        if reason is not None:
            warnings.warn(
                f"cannot compile on this machine; training runs eagerly: {reason}", RuntimeWarning, stacklevel=2
            )
            return replace(self, compute="eager")
        return self

    def decided(
        self, view: Federation | Server, rounds: int, say: Callable[[str], None] = lambda text: None
    ) -> tuple[Compute, str]:
        """Decide how the local steps of a run are executed: the rule behind `compute = "auto"`, and why.

        What takes a while is said before it begins.
        """
        unfusable = self.unfusable(view)
        kernels = (KERNEL,) if unfusable is None else self._kernels(view)
        if not kernels:
            return "compiled" if pays(view, rounds) else "eager", f"not fused: {unfusable}"
        if any(map(build.to_be_compiled, kernels)):
            say("compiling a kernel, once for this machine: some seconds")
        trouble = build.trouble(*kernels)
        if trouble is not None:
            return "eager", trouble
        if unfusable is None:
            return "fused", "a kernel takes all steps of a client"
        return "compiled", "kernels for layers"

    def placed(self, view: View) -> View:
        """Return a view of a run with its model on the device, if it can be trained there, and its layers as computed."""
        self.require(view)
        there = placed(view, self.placement)
        return with_kernels(there) if self.compute == "compiled" and self._kernels(view) else there

    def program(self, view: Federation | Site) -> BlockProgram | None:
        """Return the program that trains blocks of clients, or refuse with the reason.

        There is none where clients are trained step by step.
        """
        compiled = self.compute == "compiled"
        if self.compute != "eager" and self._trouble(view) is not None:
            raise FedquiltError(f"this run is compiled, but this machine cannot compile: {self._trouble(view)}")
        if self.compute == "fused":
            why = self.unfusable(view)
            if why is not None:
                raise FedquiltError(f'compute = "fused" is not possible here: {why}; use compute = "eager"')
            return FusedProgram(view.replica, view.algorithm, self.block)
        if self.block == 1 and (not compiled or self._kernels(view)):
            return None
        reason = unmappable(view.replica.module, view.algorithm)
        if reason is not None:
            what = f"vectorised (blocks of {self.block})" if self.block > 1 else "compiled"
            raise FedquiltError(f'{what} training is not possible here: {reason}; use compute = "eager" and processes')
        if compiled:
            keep_apart()  # again: the environment may have changed since it was tried
        return Program(view.replica, view.algorithm, view.agreement.largest, self.block, compiled)

    def blocks(self, planned: Plan, lanes: int = 1) -> list[list[int]]:
        """Cut a plan's slots into blocks, the largest clients first.

        A fused client's bits do not depend on who is with it: there, every block gets about as much work as the others, and
        each of as many workers as there are `lanes` as many blocks.
        """
        slots_asked = np.asarray(planned.slots, dtype=np.int64)
        slots = slots_asked[np.argsort(-planned.sizes[slots_asked - planned.first_slot], kind="stable")]
        if self.compute == "fused" and self.block > 1:
            turns = -(-len(slots) // (self.block * max(lanes, 1)))
            return evenly(slots, min(turns * max(lanes, 1), len(slots)))
        return [slots[first : first + self.block].tolist() for first in range(0, len(slots), self.block)]


def evenly(slots: Indices, count: int) -> list[list[int]]:
    """Deal slots out to some blocks, back and forth from the largest client to the smallest: none gets much more work.

    >>> evenly(np.arange(8), 3)
    [[0, 5, 6], [1, 4, 7], [2, 3]]
    """
    dealt = np.full((-(-len(slots) // max(count, 1)), count), -1, dtype=np.int64)
    dealt.reshape(-1)[: len(slots)] = slots
    dealt[1::2] = dealt[1::2, ::-1].copy()
    return [[slot for slot in block if slot >= 0] for block in dealt.T.tolist()]


def _rehearsal_at(view: Federation | Server | Site, placement: Placement) -> Rehearsal:
    return replace(Rehearsal.of(view), replica=view.replica.placed(placement))
