"""Weights & Biases: offline, unless `WANDB_MODE` says otherwise, so that nothing leaves the machine unasked."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

from fedquilt.base.errors import MissingExtraError
from fedquilt.base.registry import trackers
from fedquilt.experiment.tracking.trackers import flat_settings, recalled, remember, scalars
from fedquilt.experiment.watching import AboutRun

if TYPE_CHECKING:
    from fedquilt.experiment.result import Result


@trackers.register
def wandb() -> WeightsAndBiases:
    """A run in Weights & Biases, kept in `wandb/` of the run folder until `wandb sync`; `WANDB_MODE=online` sends it."""
    try:
        import wandb as library
    except ImportError:
        raise MissingExtraError("the tracker wandb", "tracking") from None
    return WeightsAndBiases(library)


class WeightsAndBiases:
    """Logs the settings as the run's configuration, and a round's numbers over rounds."""

    def __init__(self, library: Any) -> None:
        """Keep the library."""
        self._library = library
        self._run: Any = None

    def start(self, about: AboutRun) -> None:
        """Open the run; a resumed one continues under the same identifier."""
        identifier = recalled(about.folder, "wandb") or secrets.token_hex(8)
        remember(about.folder, "wandb", identifier)
        self._run = self._library.init(
            project=os.environ.get("WANDB_PROJECT") or "fedquilt",
            name=about.name,
            id=identifier,
            resume="allow",
            dir=None if about.folder is None else str(about.folder),
            mode=os.environ.get("WANDB_MODE") or "offline",
            config=flat_settings(about.settings),
            settings=self._library.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="round")

    def round(self, record: dict[str, Any]) -> None:
        """Log the round's numbers."""
        self._run.log(scalars(record) | {"round": record["round"]})

    def end(self, result: Result | None) -> None:
        """Close the run, and say how it ended."""
        if self._run is not None:
            self._run.finish(exit_code=int(result is None or result.diverged is not None))
