"""Experiments whose trials are really run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fedquilt
from fedquilt import run
from fedquilt.experiment.design.experiment import Experiment


def ran_in(folder: Path, tables: Mapping[str, Any]) -> tuple[Experiment, Path]:
    """Run every trial of an experiment below a folder."""
    experiment = fedquilt.experiment(tables)
    for trial in experiment.trials:
        run(trial.spec, out=folder / trial.name)
    return experiment, folder
