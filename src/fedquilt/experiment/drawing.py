"""Draws the plots of a run that has ended into its folder."""

from __future__ import annotations

from dataclasses import replace

from fedquilt.base import interrupts
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.plots import draw_run
from fedquilt.experiment.result import Result
from fedquilt.experiment.storage import storing
from fedquilt.round.federation import Federation


def drawn(folder: RunFolder, federation: Federation, result: Result) -> Result:
    """Draw a run's plots, unless it was interrupted; whoever interrupts the drawing has interrupted the run."""
    if not result.history.records or result.interrupted:
        return result
    try:
        with interrupts.allowed(), storing(folder.path):
            draw_run(folder.path, result.history, federation)
    except KeyboardInterrupt:  # all rounds are saved, and resuming draws what is missing
        interrupts.hold()
        return replace(result, interrupted=True)
    return result
