"""The loop over rounds: plan, run, merge, evaluate, report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from fedquilt.algorithm.state import RunState, ServerState
from fedquilt.algorithm.updates import ClientUpdate
from fedquilt.compute.layout import ModelState
from fedquilt.compute.tensors import flat
from fedquilt.round.measures import Measures, Record, evaluating, mean
from fedquilt.round.round_function import Heard, Step, Work, every_group
from fedquilt.round.server import Server
from fedquilt.round.session import Pending, Session


def rounds(
    server: Server,
    session: Session,
    run: RunState,
    last: int,
    measures: Measures = Measures(),  # noqa: B008 - it is frozen
    heard: Heard | None = None,
) -> Iterator[tuple[RunState, Record]]:
    """Run the rounds after `run` up to `last`, and yield the state and the record of each.

    While a round is evaluated, the clients of the next one are set to work. Whoever stops here gives that work up.
    """
    round_function = server.algorithm.course.round or every_group
    clock = Clock()
    pending: Pending[Record] | None = None
    while run.round < last:
        measured = (run.round + 1) % measures.every == 0 or run.round + 1 == last
        models: list[ModelState] = []
        start = run.groups[0].state.model if len(run.groups) == 1 else None
        diagnosing = partial(measures.diagnose, start, models) if measures.diagnose is not None else dict
        observe = partial(_keep, models) if measured and measures.diagnose is not None else None
        try:
            end = round_function(Work(server, session, heard, observe), run)
        finally:  # a round that cannot be begun does not cost the one before it
            if pending is not None:
                yield run, clock.timed(pending())
        run, steps = end()
        record = _record(server, steps)
        if measures.validation:
            record |= {"validation_accuracy": None, "validation_loss": None}
        if measured:
            pending = partial(_complete, record, evaluating(server, session, run, measures), diagnosing)
        else:
            pending = None
            yield run, clock.timed(record)
    if pending is not None:
        yield run, clock.timed(pending())


class Clock:
    """Notes the seconds from one record to the next, so that they add up to the time of the run."""

    def __init__(self) -> None:
        """Start."""
        self._last = time.perf_counter()

    def timed(self, record: Record) -> Record:
        """Return the record with its seconds."""
        before, self._last = self._last, time.perf_counter()
        return record | {"seconds": round(self._last - before, 4)}


def _complete(record: Record, evaluation: Pending[Record], diagnosis: Pending[Record]) -> Record:
    return record | evaluation() | diagnosis()


def _keep(models: list[ModelState], start: ModelState, update: ClientUpdate) -> None:
    models.append(ModelState(start.vector + update.delta, update.buffers.clone(), update.counters.clone()))


def _record(server: Server, steps: list[Step]) -> Record:
    first = steps[0].planned.round == 1
    seconds = [step.planned.seconds for step in steps if step.planned.seconds is not None]
    heard = [(step.merged.loss, step.merged.examples) for step in steps if step.merged.loss is not None]
    examples = sum(count for _, count in heard)
    faults = [fault for step in steps for fault in step.merged.faults]
    dropped = [fault.named(server.population.names) for fault in faults if not fault.simulated]
    absent = [{"client": fault.client, "reason": fault.reason} for fault in faults if fault.simulated]
    down = server.first.downloaded if first else 0
    down += sum(_down(server, step.before) * len(step.planned.clients) for step in steps)
    up = sum(server.layout.nbytes * len(step.merged.clients) + step.merged.extra_bytes for step in steps)
    up += server.first.uploaded if first else 0
    sends = server.algorithm.course.sends
    record: Record = {
        "round": steps[0].planned.round,
        "accuracy": None,
        "loss": None,
        "train_loss": None,
        "local_loss": None
        if not heard
        else mean([x for x, _ in heard], [count / max(examples, 1) for _, count in heard]),
        "clients": [client for step in steps for client in step.merged.clients],
        "dropped": dropped,
        "applied": any(step.applied for step in steps),
        "steps": sum(step.merged.steps for step in steps),
        "examples": sum(step.merged.examples for step in steps),
        "batches": max(step.merged.batches for step in steps),
        "gradients": sum(step.merged.gradients for step in steps),
        "bytes_down": down if sends else 0,
        "bytes_up": up if sends else 0,
    }
    return record | ({"absent": absent} if absent else {}) | ({"simulated_seconds": max(seconds)} if seconds else {})


def _down(server: Server, state: ServerState) -> int:
    return server.layout.nbytes + sum(tensor.nbytes for _, tensor in flat(state.broadcast))
