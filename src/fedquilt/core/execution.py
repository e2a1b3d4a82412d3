"""How local training is executed: one client at a time or in blocks, eagerly or compiled.

Clients are put into blocks by the plan, never by the number of workers, because the last bits of a batched product may
depend on its batch. Compiled or mapped code may differ from eager code in the last bits; each is bit-identical to itself.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedquilt.core.block import Program, unmappable
from fedquilt.core.compiling import keep_apart, pays, trouble
from fedquilt.core.federation import Federation
from fedquilt.core.place import CPU, Place, require
from fedquilt.core.plan import Plan
from fedquilt.errors import FedquiltError

Compute = Literal["auto", "eager", "compiled"]


@dataclass(frozen=True)
class Execution:
    """How clients are trained: `block` at once, eagerly or compiled, and where.

    >>> Execution(block=8).mapped, Execution().mapped
    (True, False)
    """

    block: int = 1
    compute: Compute = "eager"
    place: Place = CPU

    @property
    def mapped(self) -> bool:
        """Whether clients are trained by a program, and not step by step."""
        return self.block > 1 or self.compute == "compiled"

    def settled(self, federation: Federation, rounds: int) -> Execution:
        """Decide what "auto" is for a run, and fall back to eager code, with a warning, where nothing can be compiled."""
        require(self.place)
        if self.compute == "auto":
            return replace(self, compute="compiled" if pays(federation, rounds) else "eager")
        if self.compute == "compiled" and trouble() is not None:
            warnings.warn(
                f"nothing can be compiled here, so that the run is eager: {trouble()}", RuntimeWarning, stacklevel=2
            )
            return replace(self, compute="eager")
        return self

    def placed(self, federation: Federation) -> Federation:
        """Return the federation with its model on the device, which must be here."""
        require(self.place)
        return federation.placed(self.place)

    def program(self, federation: Federation) -> Program | None:
        """Return the program that trains blocks of a federation's clients, or refuse with the reason."""
        if not self.mapped:
            return None
        reason = unmappable(federation.bench.module, federation.algorithm)
        if reason is not None:
            what = f"vectorised (blocks of {self.block})" if self.block > 1 else "compiled"
            raise FedquiltError(f'{what} training is not possible here: {reason}; use compute = "eager" and processes')
        if self.compute == "compiled":
            keep_apart()  # again: the environment may have changed since it was tried
        if self.compute == "compiled" and trouble() is not None:
            raise FedquiltError(f"this run is compiled, and nothing can be compiled here: {trouble()}")
        largest = int(federation.population.sizes.max())
        return Program(federation.bench, federation.algorithm, largest, self.block, self.compute == "compiled")

    def blocks(self, planned: Plan) -> list[list[int]]:
        """Cut a plan's slots into blocks, the largest clients first."""
        there = np.asarray(planned.slots, dtype=np.int64)
        slots = there[np.argsort(-planned.sizes[there - planned.first_slot], kind="stable")].tolist()
        return [slots[first : first + self.block] for first in range(0, len(slots), self.block)]
