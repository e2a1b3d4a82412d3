"""The outcome of a trial: what its run folder says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.analysis.curves import History
from fedquilt.base.errors import FedquiltError
from fedquilt.base.text import short
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.fingerprint import SAME_RESULT, differences
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.spec import check_spec
from fedquilt.experiment.summary import summarise

NOT_RUN = "has not been run"
GIVEN_UP = "given up"
"""The state of a trial that needs no end: others of its cell are better, whatever it does (see `race`)."""


@dataclass(frozen=True)
class Outcome:
    """A trial with what its run folder says.

    `state` is that of `fedquilt show`, "not run", `GIVEN_UP`, or "unusable": damaged, or of another
    experiment. `problem` says why there is no result, or not a whole one.
    """

    trial: Trial
    folder: Path
    state: str
    history: History
    problem: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the run has come to its end, well or not, or need not."""
        return self.state in ("finished", "diverged", GIVEN_UP)


def outcome_of(trial: Trial, folder: Path) -> Outcome:
    """Read the run of a trial below an experiment's folder; what cannot be read is a problem of this trial alone."""
    run = RunFolder(folder / trial.name)
    nothing = History([])
    if not run.spec.exists() and (why := run.failure()) is not None:
        return Outcome(trial, run.path, "failed", nothing, f"failed: {why}")
    if not run.spec.exists():
        return Outcome(trial, run.path, "not run", nothing, NOT_RUN)
    try:
        found = run.read()
        about = summarise(run, found)
        before = check_spec(found.tables, str(run.spec)).resolved()  # with keys that there were not yet when it was run
    except FedquiltError as error:
        return Outcome(trial, run.path, "unusable", nothing, str(error))
    except OSError as error:
        return Outcome(trial, run.path, "unusable", nothing, f"cannot be read: {error.strerror}")
    settings = [
        {name: table for name, table in each.items() if name != "engine"} for each in (before, trial.spec.resolved())
    ]
    for where, old, new in differences(settings[0], settings[1], SAME_RESULT, own_defaults=False):
        why = f"holds a run with other settings: {where} is {short(old)} there, {short(new)} in the experiment"
        return Outcome(trial, run.path, "unusable", nothing, why)
    if found.lost:
        return Outcome(trial, run.path, "unusable", nothing, f"is damaged: {'; '.join(found.damage)}")
    # Whether it was given up rightly is seen from the other trials.
    state = "interrupted" if about["state"] == GIVEN_UP else about["state"]
    return Outcome(trial, run.path, state, found.history, _problem(about | {"state": state}))


def _problem(about: dict[str, Any]) -> str | None:
    state = about["state"]
    why = {"failed": about["error"], "diverged": about["diverged"]}.get(state)
    if state == "finished":
        return None
    return state if why is None else f"{state}: {why}"
