"""Takes over runs of other sweeps: a baseline that several tables share is run once, and copied.

A run is taken over if its spec is the trial's, apart from the engine's workers and from where it ends, and if it began with
the same data, model and code. One that ended earlier than the trial is to end is continued.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.experiment.contents import LOG, SPEC
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.fingerprint import SAME_RESULT
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.run_folders import run_folders
from fedquilt.experiment.storage import storing
from fedquilt.experiment.sweeping.standing import ENDS, same_federation, standing

WHOLE = ("finished", "diverged", "shorter")
"""What a run must be to be taken over: one that was interrupted may be going on elsewhere."""


class Reused:
    """The runs below some folders, and which of them were taken over."""

    def __init__(self, folders: Iterable[str | Path] = ()) -> None:
        """Begin with none taken over; nothing is read before the first trial is looked for."""
        self._folders = [Path(folder) for folder in folders]
        for folder in self._folders:
            if not folder.is_dir():
                raise RunError(f"{folder}: no such folder; `reuse` takes folders of sweeps, or one that holds several")
        self.taken: dict[str, Path] = {}

    @cached_property
    def _runs(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = defaultdict(list)
        for path in (run for folder in self._folders for run in run_folders(folder)):
            try:
                found[_key(tomllib.loads((path / SPEC).read_text(encoding="utf-8")))].append(path)
            except (OSError, ValueError):  # damaged: whoever looks at that run itself is told
                continue
        return found

    def take(self, trial: Trial, folder: Path) -> None:
        """Copy a run of the same spec to where a trial's is to be, unless there is something already."""
        target = folder / trial.name
        if not self._folders or target.exists():
            return
        try:
            candidates = self._runs.get(_key(tomllib.loads(trial.spec.to_toml())), [])
        except FedquiltError:  # values that no file can hold: the trial itself says so
            return
        for path in candidates:
            if _fits(path, trial):
                _copy(path, target)
                self.taken[trial.name] = path
                return


def _key(tables: Mapping[str, Any]) -> str:
    """Return what two runs must have alike to the letter, as one text.

    >>> _key({"run": {"rounds": 2, "seed": 1}, "engine": {"workers": 2}}) == _key({"run": {"rounds": 3, "seed": 1}})
    True
    """
    free = SAME_RESULT | ENDS
    run = {key: value for key, value in tables.get("run", {}).items() if f"run.{key}" not in free}
    return json.dumps({**tables, "run": run, "engine": None}, sort_keys=True, default=str)


def _fits(path: Path, trial: Trial) -> bool:
    run = RunFolder(path)
    try:
        whole = not run.running() and standing(path, trial.spec, thorough=True).kind in WHOLE
        return whole and same_federation(run.read(), trial.spec)
    except (FedquiltError, OSError):
        return False


def _copy(path: Path, target: Path) -> None:
    """Copy a run; what a crash leaves of it is hidden, and no run."""
    part = target.with_name(f".{target.name}.part")
    with storing(target):
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(path, part, ignore=shutil.ignore_patterns(".lock"))
        with (part / LOG).open("a", encoding="utf-8") as log:
            log.write(f"copied from {path}\n")
        part.rename(target)
