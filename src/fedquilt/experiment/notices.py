"""What a user is warned of during a run."""

from __future__ import annotations

import warnings

import numpy as np

from fedquilt.algorithm.parts.sampling import Epochs, leaves_out_single
from fedquilt.analysis.curves import History
from fedquilt.analysis.standing import HINT, divergence
from fedquilt.base.text import counted
from fedquilt.experiment.options import Options
from fedquilt.round.federation import Federation
from fedquilt.round.server import Server


def warn_of_too_few_rounds(federation: Federation | Server, last: int) -> None:
    """Warn of a run that ends before its method makes a difference."""
    needed = federation.algorithm.course.needs_rounds
    if last < needed:
        warnings.warn(
            f"the run has {counted(last, 'round')}, but its method has no effect before round {needed}; "
            "set run.rounds to a larger number",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_single_examples(federation: Federation | Server) -> None:
    """Warn of last batches that are left out because they are a single example, and of clients that hold but one."""
    sample = federation.algorithm.sample
    if not isinstance(sample, Epochs) or not leaves_out_single(sample):
        return
    of_size = dict(
        zip(*(each.tolist() for each in np.unique(federation.population.sizes, return_counts=True)), strict=True)
    )
    short = sum(clients for size, clients in of_size.items() if sample.a_pass(size) < size)
    said = []
    if short:
        said.append(f"{counted(short, 'client')} would end each pass with a batch of one, which is skipped (drop_last)")
    if 1 in of_size:
        said.append(f"{counted(of_size[1], 'client')} with a single example cannot train")
    if said:
        warnings.warn(
            f"the model's batch normalisation needs at least two examples per batch: {'; '.join(said)}",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_left_out(history: History) -> None:
    """Warn of clients that were left out of a round, the first time."""
    record = history.records[-1]
    if not record["dropped"] or any(before["dropped"] for before in history.records[:-1]):
        return
    first, count = record["dropped"][0], len(record["dropped"])
    others = f" (and {count - 1} more)" if count > 1 else ""
    effect = "" if record["applied"] else "; no client was left, and the model stays as it was"
    warnings.warn(
        f"client {first['client']} was left out of round {record['round']}{others}: {first['reason']}{effect}. "
        "Later faults are only in the metrics.",
        RuntimeWarning,
        stacklevel=3,
    )


def warn_of_untested(history: History) -> None:
    """Warn of clients whose per-client test failed, the first time."""
    *earlier, record = history.records
    if not record.get("per_client_dropped") or any(before.get("per_client_dropped") for before in earlier):
        return
    first, count = record["per_client_dropped"][0], len(record["per_client_dropped"])
    others = f" (and {count - 1} more)" if count > 1 else ""
    warnings.warn(
        f"client {first['client']}{others} failed its per-client test after round {record['round']}: "
        f"{first['reason']}. Later faults are only in the metrics.",
        RuntimeWarning,
        stacklevel=3,
    )


def warn_of_divergence(history: History, options: Options, last: int) -> None:
    """Warn of a run that has diverged and continues nevertheless, the first time."""
    if options.on_divergence == "stop" or len(history) == last:
        return
    why = divergence(history, last)
    if why is not None and divergence(History(history.records[:-1]), last) is None:
        warnings.warn(
            f"{why}: the run has diverged, and continues, as run.on_divergence = 'go_on' asks. {HINT}.",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_odd_metrics(history: History) -> None:
    """Warn of a metric that is not finite, the first time."""
    *earlier, record = history.records
    odd = {name for name, value in record.get("metrics", {}).items() if value is None}
    known = {name for before in earlier for name, value in before.get("metrics", {}).items() if value is None}
    for name in sorted(odd - known):
        warnings.warn(
            f"metric {name} is not finite after round {record['round']}; it is written as null",
            RuntimeWarning,
            stacklevel=3,
        )
