"""MLflow: the store that `MLFLOW_TRACKING_URI` names, or an SQLite file beside the run folder."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.base.errors import MissingExtraError
from fedquilt.base.registry import trackers
from fedquilt.experiment.tracking.trackers import flat_settings, recalled, remember, scalars
from fedquilt.experiment.watching import AboutRun

if TYPE_CHECKING:
    from fedquilt.experiment.result import Result

LONGEST = 500
"""Characters of a parameter's value that all of MLflow's stores take."""

AT_ONCE = 100
"""Parameters that MLflow takes at once."""


@trackers.register
def mlflow() -> MLflow:
    """A run in MLflow: in the store of `MLFLOW_TRACKING_URI`, or in `mlflow.db` beside the run folder."""
    try:
        import mlflow as library
        import sqlalchemy  # noqa: F401 - what its store of a file needs
    except ImportError:
        raise MissingExtraError("the tracker mlflow", "tracking") from None
    return MLflow(library)


class MLflow:
    """Logs the settings as parameters and a round's numbers as metrics; a resumed run continues in the same MLflow run."""

    def __init__(self, library: Any) -> None:
        """Keep the library."""
        self._library, self._run = library, ""
        self._client: Any = None

    def start(self, about: AboutRun) -> None:
        """Open the store, and the run in it."""
        beside = Path.cwd() if about.folder is None else about.folder.absolute().parent
        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{beside / 'mlflow.db'}"
        self._client = client = self._library.MlflowClient(tracking_uri=store)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "fedquilt"
        found = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if found is None else found.experiment_id
        before = recalled(about.folder, "mlflow")
        if before is not None and self._there(before):
            self._run = before
            client.update_run(before, status="RUNNING")
            return
        self._run = client.create_run(experiment, run_name=about.name).info.run_id
        remember(about.folder, "mlflow", self._run)
        params = [
            self._library.entities.Param(_named(key), str(value)[:LONGEST])
            for key, value in flat_settings(about.settings).items()
        ]
        for first in range(0, len(params), AT_ONCE):
            client.log_batch(self._run, params=params[first : first + AT_ONCE])

    def round(self, record: dict[str, Any]) -> None:
        """Log the round's numbers."""
        now, metric = int(time.time() * 1000), self._library.entities.Metric
        metrics = [metric(_named(name), value, now, record["round"]) for name, value in scalars(record).items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, result: Result | None) -> None:
        """Say how the run ended."""
        failed = result is None or result.diverged is not None
        state = "FAILED" if failed else "KILLED" if result is not None and result.interrupted else "FINISHED"
        if self._client is not None:
            self._client.set_terminated(self._run, state)

    def _there(self, run: str) -> bool:
        """Say whether the store knows a run: it may be another store than before."""
        try:
            self._client.get_run(run)
        except self._library.exceptions.MlflowException:
            return False
        return True


def _named(key: str) -> str:
    """Return a name that MLflow takes."""
    return re.sub(r"[^\w\-. /]", "_", key)
