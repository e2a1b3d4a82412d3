"""The engine of a run that names none: whatever is fastest for its model, data, method, length, and this machine.

It is decided once, when a run begins, by the rule of `chosen`, and written into the run's spec; a run that is continued
keeps it, because it may decide the last bits of the result. docs/fast.md states the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fedquilt.base.arguments import Workers
from fedquilt.base.cores import cores
from fedquilt.base.registry import engines
from fedquilt.base.rng import generator
from fedquilt.base.text import counted
from fedquilt.compute.device import Device, Placement, Precision
from fedquilt.engines.compiling import planned_steps
from fedquilt.engines.executing import Executing
from fedquilt.engines.execution import Compute, Execution
from fedquilt.engines.inline import InlineEngine
from fedquilt.engines.pipes import Start
from fedquilt.engines.processes import ProcessEngine, process_engine
from fedquilt.round.federation import Federation
from fedquilt.round.session import Engine, Session

Chosen = ProcessEngine | InlineEngine

A_CLIENT, A_STEP, A_PARAMETER = 2e-5, 2e-6, 1.5e-9
"""Seconds that the kernel for stacks takes for a client, a step and a parameter of a step, about: batches of ten."""

A_TASK = 0.1
"""Seconds that a task of the kernel should take: much more than handing it over. Tasks have about the same work each."""

MODELS = 2**22
"""Numbers in the models of a task's clients, at most: a worker has up to five copies of them."""

SMALL = 20_000
"""Parameters of a model whose compiled step is faster for several clients at once."""


@engines.register
def auto(
    workers: Workers | None = None,
    start: Start | None = None,
    compute: Compute = "auto",
    precision: Precision = "float32",
    device: Device = "cpu",
    inline: bool | None = None,
) -> Engine:
    """Whatever is fastest for the run; the default.

    One of the other engines is chosen when a run begins, by the model, the data, the method, the number of rounds and the
    cores, and written into the run's spec. What is given here is kept; the arguments are those of `processes`. With
    `inline`, clients are trained in the run's own process.

    >>> auto(workers=2).compute
    'auto'
    """
    return AutoEngine(Execution(1, compute, Placement(device, precision)), workers, start, bool(inline))


@dataclass(frozen=True)
class AutoEngine(Executing):
    """See `auto`."""

    workers: int | None
    start: Start | None
    inline: bool

    def settled(self, federation: Federation, rounds: int) -> Chosen:  # type: ignore[override]
        """Choose the engine of a run."""
        return chosen(self, federation, rounds)[0]

    def keeping(self, execution: Execution) -> Chosen:
        """Return the engine of a run that is continued: what decides its bits is kept, its workers may be others."""
        if self.inline:
            return InlineEngine(execution)
        return process_engine(self.workers, self.start, execution)

    @contextmanager
    def open(self, federation: Federation) -> Iterator[Session]:
        """Open the engine of a run of one round: a longer one settles which it is first."""
        with self.settled(federation, rounds=1).open(federation) as session:
            yield session


def chosen(
    asked: AutoEngine, federation: Federation, rounds: int, say: Callable[[str], None] = lambda text: None
) -> tuple[Chosen, str]:
    """Choose the engine of a run, and say why: the rule behind a spec without `[engine]`.

    1. How local steps are executed: as `compute` says, or, for "auto", by `Execution.decided`.
    2. How many clients are trained at once: one, unless the whole step is compiled, or fused, and clients have no time
       limit of their own. Then it is a core's share of a round (compiled, up to 20,000 parameters), or, fused, as many of
       that share as make tasks of about 0.1 s, and whose models have four million parameters together. It is the cores
       that count, not the workers: a trial of a sweep, which has one worker, gives the same bits as a run alone.
    3. How many workers: one per core, unless given, and never more than clients in a round.

    What takes a while is said before it begins.
    """
    execution, why = asked.execution, "as asked"
    if asked.compute == "auto":
        compute, why = execution.decided(federation, rounds, say)
        execution = replace(execution, compute=compute)
    execution = execution.settled(federation, rounds)
    cohort = cohort_size(federation)
    execution = replace(execution, block=_block(execution, federation, cohort))
    engine = asked.keeping(execution)
    if isinstance(engine, ProcessEngine):
        engine = replace(engine, workers=min(engine.workers, cohort))
    return engine, why


def _block(execution: Execution, federation: Federation, cohort: int) -> int:
    """Return how many clients are trained at once."""
    share = -(-cohort // cores())
    if federation.client_seconds is not None:
        return 1
    if execution.compute != "fused":
        return share if execution.whole(federation) and federation.layout.size <= SMALL else 1
    steps = planned_steps(federation, rounds=1) / cohort
    a_client = A_CLIENT + steps * (A_STEP + federation.layout.size * A_PARAMETER)
    turns = max(round(cohort * a_client / A_TASK / cores()), 1)
    return min(-(-cohort // min(turns * cores(), cohort)), max(MODELS // federation.layout.size, 1))


def cohort_size(federation: Federation) -> int:
    """Return how many clients take part in the first round."""
    sizes = federation.population.sizes
    return max(len(federation.algorithm.select(sizes, generator(federation.seed, "select", 1))), 1)


def in_words(engine: Chosen, why: str) -> str:
    """Say in one line which engine was chosen, and why.

    >>> in_words(InlineEngine(Execution(5, "compiled")), "as asked")
    'inline, 5 clients at once, compiled (as asked)'
    """
    table, execution = engine.table, engine.execution
    who = f" with {counted(engine.workers, 'worker')}" if isinstance(engine, ProcessEngine) else ""
    many = f", {counted(execution.block, 'client')} at once" if execution.block > 1 else ""
    return f"{table['name']}{who}{many}, {execution.compute} ({why})"
