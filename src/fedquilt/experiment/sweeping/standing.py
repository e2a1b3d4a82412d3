"""What a trial's folder holds already: this trial, finished or not, or a run that something else decided the bits of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedquilt.analysis.standing import Standing
from fedquilt.base.text import short
from fedquilt.experiment.build import build
from fedquilt.experiment.contents import Contents
from fedquilt.experiment.fingerprint import SAME_RESULT, differences, fingerprint
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.run import keeping_engine, spec_of
from fedquilt.experiment.spec import Spec
from fedquilt.experiment.summary import summarise
from fedquilt.experiment.toml import Table
from fedquilt.round.session import Settling, settled

ENDS = {"run.rounds", "run.stop_at", "run.patience", "run.stop_after_seconds"}
"""Keys that decide where a run ends, but nothing of the rounds before."""


@dataclass(frozen=True)
class TrialStanding:
    """What a folder holds.

    - "nothing": no run.
    - "finished" or "diverged": this trial; `accuracy` and `loss` are its best.
    - "unfinished": this trial, interrupted or failed.
    - "shorter": this trial, up to a round after which it would continue now.
    - "other": a run of other settings, code or data; `why` says what differs.
    - "unknown": this trial, if what only a look at the data or the code can tell is as it was.
    """

    kind: Literal["nothing", "finished", "diverged", "unfinished", "shorter", "other", "unknown"]
    why: str = ""
    round: int = 0
    accuracy: float | None = None
    loss: float | None = None


def standing(path: Path, spec: Spec, thorough: bool) -> TrialStanding:
    """Compare what a folder holds with a trial's spec.

    What decides the bits of a result counts, of the engine too, and not the number of workers, for example. Only a
    `thorough` look loads the data, to see what `compute = "auto"` is and whether the user's own code has changed.
    """
    folder = RunFolder(path)
    if not folder.spec.exists():
        return TrialStanding("nothing")
    found = folder.read()
    had = spec_of(folder, found)
    before, now = _settings(had), _settings(keeping_engine(spec, had))
    undecided = now["engine"].get("compute") == "auto" != before["engine"].get("compute")
    if undecided and thorough:
        federation, engine = build(spec)
        now["engine"] = _deciding_of(settled(engine, federation, spec.options.rounds))
    elif undecided:
        now["engine"] = before["engine"]
    for where, old, new in differences(before, now, SAME_RESULT | ENDS):
        return TrialStanding("other", f"{where} was {short(old)}, and is {short(new)} now")
    about = summarise(folder, found)
    if any(differences(before, now, SAME_RESULT)):
        return _ends_elsewhere(found, spec)
    if (undecided or _own_code(spec)) and not thorough:
        return TrialStanding("unknown")
    if _own_code(spec) and not _same_code(found, spec):
        return TrialStanding("other", "the data, or code of your own, have changed")
    best, lowest = found.history.best, found.history.lowest
    scores = best[1] if best else None, lowest[1] if lowest else None
    if about["state"] in ("finished", "diverged"):
        return TrialStanding("finished" if about["state"] == "finished" else "diverged", "", found.round, *scores)
    return TrialStanding("unfinished", "", found.round, *scores)


def _ends_elsewhere(found: Contents, spec: Spec) -> TrialStanding:
    """Say whether a run can continue from where it is, or has gone past where it would have ended."""
    options, reached = spec.options, Standing()
    for record in found.history.records[:-1]:
        reached = reached.after(record)
        if (why := reached.ending(options.stop_at, options.patience, options.stop_after_seconds)) is not None:
            return TrialStanding("other", f"it would have stopped after round {record['round']}: {why}")
    if found.round > spec.options.rounds:
        return TrialStanding("other", f"it has {found.round} rounds, and is to have {spec.options.rounds} now")
    return TrialStanding("shorter", round=found.round)


def _same_code(found: Contents, spec: Spec) -> bool:
    return found.saved is None or found.saved.about.get("federation") == fingerprint(build(spec)[0])


def _own_code(spec: Spec) -> bool:
    objective = [spec.options.loss or "", *(spec.options.metrics or [])]
    return any(":" in name for name in [*objective, *(part.name for part in spec.parts.values())])


def _settings(spec: Spec) -> dict[str, Table]:
    """Return what decides a run's result, by table."""
    return spec.resolved() | {"engine": _deciding(spec)}


def _deciding(spec: Spec) -> Table:
    """Return what of a spec's engine decides the bits of a result: not the number of workers, for example."""
    part = spec.parts["engine"]
    return _deciding_of(part.function(**part.arguments)) or {"name": part.name, **part.arguments}


def _deciding_of(engine: object) -> Table:
    return {"compute": engine.compute, "where": engine.where} if isinstance(engine, Settling) else {}
