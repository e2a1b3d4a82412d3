"""Keeps what a crash must not lose: a run's records and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedquilt.algorithm.state import RunState
from fedquilt.base.errors import StorageError
from fedquilt.compute.layout import Tensors
from fedquilt.experiment.client_accuracies import ClientAccuracies
from fedquilt.experiment.contents import BEST
from fedquilt.experiment.folder import MetricsWriter, RunFolder
from fedquilt.experiment.storage import storing


class RunWriter:
    """Writes metrics and checkpoints: records first, so that a checkpoint never runs ahead of them."""

    def __init__(
        self,
        folder: RunFolder,
        metrics: MetricsWriter,
        start: int,
        about: dict[str, str],
        digest: Callable[[RunState], str],
        seconds: float,
        frozen: Tensors,
        best: int | None = None,
    ) -> None:
        """Continue after round `start`, with a checkpoint every so many seconds; `about` and `frozen` stand in each.

        `best` is the round of the best model that is saved already.
        """
        self.metrics = metrics
        self.client_accuracies = ClientAccuracies()
        self._folder = folder
        self._about = about
        self._digest = digest
        self._seconds = seconds
        self._frozen = frozen
        self._newest: RunState | None = None
        self._best: RunState | None = None
        self._saved, self._best_saved = start, best
        self._writable = True
        self._when = time.monotonic()

    def keep(self, run: RunState, record: dict[str, Any], best: RunState | None, now: bool) -> None:
        """Write a round's record, and a checkpoint, with the best state if that is kept, if it is time or asked for now."""
        with self._writing():
            self.metrics.append(record)
            self._newest, self._best = run, best
            if now:  # before the last checkpoint: a finished run has it
                self.client_accuracies.write(self._folder)
            if now or time.monotonic() - self._when >= self._seconds:
                self._save(run)

    def catch_up(self) -> None:
        """Save the newest round whose record is written: an interruption may have come before the last one's."""
        if self._newest is not None and self._newest.round > self._saved and self._writable:
            with self._writing():
                self._save(self._newest)

    def fail(self, why: str | None) -> None:
        """Save what there is, and note why the run could not continue, if that is known."""
        self.catch_up()
        if why is not None:
            self._folder.fail(why)

    def _save(self, run: RunState) -> None:
        self.metrics.sync()
        if self._best is not None and self._best.round != self._best_saved:
            # Before the checkpoint, after which the run goes on: the best of its rounds is there, whatever happens next.
            self._folder.save(self._best, self._about | {"model": self._digest(self._best)}, self._frozen, BEST)
            self._best_saved = self._best.round
        self._folder.save(run, self._about | {"model": self._digest(run)}, self._frozen)
        self._saved, self._when = run.round, time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with storing(self._folder.path):
                yield
        except StorageError:
            self._writable = False
            raise
