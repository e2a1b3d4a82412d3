"""Where a submission says how it goes: a file that the command which has submitted it reads."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.experiment.deployment.folder import DeploymentFolder


@dataclass(frozen=True)
class Ticket:
    """Where a submission says how it goes, for the command that has submitted it."""

    folder: DeploymentFolder
    number: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder.state / "submitted" / f"{self.number}.json"

    def write(self, state: str, **more: Any) -> None:
        """Say how it goes."""
        if not self.number.isalnum():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({"state": state, "process": os.getpid(), **more}), encoding="utf-8")
        part.replace(self.path)

    def read(self) -> dict[str, Any] | None:
        """Return what was said last."""
        found: dict[str, Any] | None = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else None
        return found
