"""Partial sums: several clients' updates, added up where they were trained, with the same bits as one by one.

Sums over clients are exact (`algorithm/exact.py`), and can be made in any order and in parts. Where the reduction is such a
sum, and nothing needs single updates, what the server receives does not grow with the cohort.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.updates import (
    Answer,
    BlockFold,
    BlockUpdate,
    ClientUpdate,
    Cohort,
    Fault,
    PartialSum,
    SummingFold,
    one_by_one,
)
from fedquilt.round.checks import Expected
from fedquilt.round.merge import checked, taken_singly
from fedquilt.round.plan import Plan
from fedquilt.round.server import Server


def summable(server: Server, planned: Plan, observed: bool) -> bool:
    """Say whether the updates of a plan's clients may come as sums; not where they are `observed` one by one."""
    if observed or taken_singly(server.algorithm, server.layout):
        return False
    return isinstance(server.algorithm.reduce(planned.cohort(0)), SummingFold)


def summed(algorithm: Algorithm, cohort: Cohort, expected: Expected, answers: Iterable[Answer]) -> list[Answer]:
    """Add up updates of a cohort's clients, each checked as the server would.

    Faults are passed on, and so is the update of a client that sends or keeps something besides it.
    """
    fold = algorithm.reduce(cohort)
    assert isinstance(fold, SummingFold)
    others: list[Answer] = []
    rows: list[tuple[int, int, float, float, int, int]] = []
    for answer in answers:
        if isinstance(answer, BlockUpdate) and isinstance(fold, BlockFold) and expected.all_usable(answer):
            fold.add_block(answer)
            expected.answered.update(answer.slots)
            columns = answer.clients, answer.slots, answer.weights, answer.losses, answer.steps, answer.examples
            rows.extend(zip(*columns, strict=True))
            continue
        for result in one_by_one([answer]):
            update = checked(result, expected)
            if isinstance(update, Fault) or _sends_more(update):
                others.append(update)
                continue
            fold.add(update)
            rows.append((update.client, update.slot, update.weight, update.loss, update.steps, update.examples))
    if rows:
        clients, slots, weights, losses, steps, examples = (list(column) for column in zip(*rows, strict=True))
        others.append(PartialSum(clients, slots, fold.total, weights, losses, steps, examples))
    return others


def _sends_more(update: ClientUpdate) -> bool:
    besides = update.client_state is not None or bool(update.extra_upload)
    return besides or bool(update.more_batches or update.more_gradients)
