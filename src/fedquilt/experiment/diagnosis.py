"""Diagnoses a run from its folder: trains the next round's clients from its newest checkpoint, and measures them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedquilt.algorithm.algorithm import PerClient
from fedquilt.analysis.diagnosis import diagnose
from fedquilt.base.errors import RunError
from fedquilt.engines import inline
from fedquilt.experiment.build import build
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.run import read_spec
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures

KEYS = ("conflict_rate", "divergence", "excess_risk")


def diagnose_run(path: str | Path) -> dict[str, Any]:
    """Measure why a run's clients disagree, in the round that would come next; see `fedquilt.analysis.diagnosis`.

    The folder is not changed.

    >>> import tempfile
    >>> from fedquilt import run
    >>> spec = {
    ...     "run": {"rounds": 2},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "shards", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg", "fraction": 0.5},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = run(spec, out=folder)
    ...     found = diagnose_run(folder)
    >>> sorted(found), 0 < found["conflict_rate"] < 1
    (['conflict_rate', 'divergence', 'excess_risk'], True)
    """
    folder = RunFolder(Path(path))
    spec = read_spec(folder)
    saved = folder.read().saved
    if saved is None:
        raise RunError(f"{folder.path}: has no checkpoint yet; run at least one round, then diagnose it")
    federation, _ = build(spec)
    federation = replace(federation, algorithm=replace(federation.algorithm, per_client=PerClient()), tests=None)
    state, measures = saved.run, Measures(diagnose=partial(diagnose, federation))
    with inline().open(federation) as session:
        _, record = next(rounds(federation.server, session, state, state.round + 1, measures))
    return {key: record[key] for key in KEYS if key in record}
