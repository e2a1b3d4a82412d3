"""Makes the trackers that a run names, and what they have in common: what is logged of a round, and of the settings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedquilt.analysis.curves import COUNTS, MAIN
from fedquilt.base import registry
from fedquilt.base.errors import SpecError
from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.imports import imported
from fedquilt.experiment.watching import METHODS, Harmless

KEPT = "tracking"
"""The folder of a run in which trackers keep what they need to continue it."""

FURTHER = ("local_loss", "per_client_accuracy", "per_client_accuracy_worst_tenth", "conflict_rate", "simulated_seconds")


def made_trackers(names: Iterable[str] | None, home: Path | None = None, where: str = "track") -> list[Harmless]:
    """Make the trackers of some names or import paths; a package that is missing is said here, before anything runs.

    >>> made_trackers(["tensorbored"])
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: track: no tracker is called 'tensorbored'; did you mean 'tensorboard'? (known: mlflow,
    tensorboard, wandb); or the import path of your own, "module:function"
    """
    made = []
    for name in names or ():
        if name not in registry.trackers and ":" not in name:
            raise SpecError(f"{where}: {registry.trackers.unknown(name)}")
        own = name not in registry.trackers
        function = imported(name, home, where) if own else registry.trackers[name]
        tracker = function()
        if not any(callable(getattr(tracker, method, None)) for method in METHODS):
            raise SpecError(f"{where}: '{name}' has none of the methods of a watcher: {', '.join(METHODS)}")
        made.append(Harmless(name, tracker))
    return made


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a round's record, by name.

    >>> scalars({"round": 1, "accuracy": 0.5, "loss": None, "clients": [4, 2], "dropped": [], "metrics": {"top5": 0.9}})
    {'accuracy': 0.5, 'clients': 2, 'dropped': 0, 'top5': 0.9}
    """
    found = {name: record.get(name) for name in (*MAIN, *FURTHER, *COUNTS)}
    found |= {name: len(record[name]) for name in ("clients", "dropped") if name in record}
    found |= record.get("metrics", {})
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run by dotted key.

    >>> flat_settings({"method": {"name": "fed_avg", "lr": 0.1}, "wrap": [{"name": "fed_prox"}]})
    {'method.name': 'fed_avg', 'method.lr': 0.1, 'wrap.1.name': 'fed_prox'}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        numbered = isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)
        inner = {str(n): each for n, each in enumerate(value, start=1)} if numbered else value
        if isinstance(inner, Mapping):
            found |= {f"{name}.{key}": each for key, each in flat_settings(inner).items()}
        else:
            found[name] = value
    return found


def recalled(folder: Path | None, tracker: str) -> str | None:
    """Return the identifier that a tracker gave a run before, so that the same one continues."""
    path = None if folder is None else folder / KEPT / tracker
    if path is None or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    return text if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text) else None


def remember(folder: Path | None, tracker: str, identifier: str) -> None:
    """Keep the identifier that a tracker gave a run."""
    if folder is not None:
        (folder / KEPT).mkdir(exist_ok=True)
        write_whole(folder / KEPT / tracker, identifier.encode())
