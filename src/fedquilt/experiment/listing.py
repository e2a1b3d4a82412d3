"""The runs of a folder with their state and progress; of an experiment's folder, those that have not begun too."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedquilt.base.errors import SpecError
from fedquilt.experiment.contents import EXPERIMENT
from fedquilt.experiment.design.experiment import experiment
from fedquilt.experiment.imports import unimported
from fedquilt.experiment.page.source import Reader, ReadRun, run_folders

RECENT = 20
"""Rounds by whose pace the time that is left is estimated."""


@dataclass(frozen=True)
class ListedRun:
    """A run in a list; `state` is as `fedquilt show` has it, or "waiting", or "unreadable", and `problem` says why."""

    name: str
    path: Path
    state: str
    round: int = 0
    rounds: int | None = None
    accuracy: float | None = None
    loss: float | None = None
    best: float | None = None
    seconds_left: float | None = None
    digest: str | None = None
    problem: str | None = None

    def about(self) -> dict[str, Any]:
        """Return what there is to say, as JSON has it."""
        return asdict(self) | {"path": str(self.path)}


def listing(folder: Path) -> list[ListedRun]:
    """List the runs below a folder, and the trials of an experiment that have no run yet."""
    reader = Reader()
    listed = [_listed(folder, reader.run(path)) for path in run_folders(folder)]
    begun = {run.path for run in listed}
    return [*listed, *(ListedRun(path.name, path, "waiting") for path in _trials(folder) if path not in begun)]


def _trials(folder: Path) -> list[Path]:
    """Return the folders of an experiment's trials; none where there is no experiment, or it cannot be read."""
    if not (folder / EXPERIMENT).is_file():
        return []
    try:
        with unimported():
            return [folder / trial.name for trial in experiment(folder / EXPERIMENT).trials]
    except SpecError:
        return []


def _listed(folder: Path, run: ReadRun) -> ListedRun:
    name = str(run.path.relative_to(folder))
    if run.about is None or run.found is None:
        return ListedRun(name, run.path, "unreadable", problem=run.problem)
    about, best = run.about, (run.about["known"] or run.about)["best"]
    left = None
    if about["state"] == "running" and about["rounds"]:
        late = [record["seconds"] for record in run.found.history.records[-RECENT:]]
        left = (about["rounds"] - about["round"]) * sum(late) / len(late) if late else None
    return ListedRun(
        name,
        run.path,
        about["state"],
        about["round"],
        about["rounds"],
        about["accuracy"],
        about["loss"],
        None if best is None else best.get("accuracy", best.get("loss")),
        left,
        about["digest"],
        "; ".join(about["damage"]) or None,
    )
