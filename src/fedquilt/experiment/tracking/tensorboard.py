"""TensorBoard: event files in the run folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedquilt.base.errors import MissingExtraError
from fedquilt.base.registry import trackers
from fedquilt.experiment.tracking.trackers import flat_settings, scalars
from fedquilt.experiment.watching import AboutRun

if TYPE_CHECKING:
    from fedquilt.analysis.curves import History
    from fedquilt.experiment.result import Result


@trackers.register
def tensorboard() -> TensorBoard:
    """Event files for TensorBoard in `tensorboard/` of the run folder; see them with `tensorboard --logdir runs`."""
    try:
        from torch.utils import tensorboard as writers
    except ImportError:
        raise MissingExtraError("the tracker tensorboard", "tracking") from None
    return TensorBoard(writers.SummaryWriter)


class TensorBoard:
    """Writes a scalar for every number of a record, and the settings as text."""

    def __init__(self, writer: Any) -> None:
        """Keep the class of writers."""
        self._make = writer
        self._writer: Any = None
        self._about: AboutRun | None = None

    def start(self, about: AboutRun) -> None:
        """Note where to write."""
        self._about = about

    def begin(self, history: History, last: int) -> None:
        """Open the event file; rounds that are done again take the place of those before."""
        if self._about is None:  # the run had ended before
            return
        folder = None if self._about.folder is None else str(self._about.folder / "tensorboard")
        self._writer = self._make(folder, purge_step=history.last + 1)
        rows = [f"| {key} | {value} |" for key, value in flat_settings(self._about.settings).items()]
        self._writer.add_text("settings", "\n".join(["| key | value |", "|---|---|", *rows]), history.last)

    def round(self, record: dict[str, Any]) -> None:
        """Write the round's numbers."""
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, record["round"])

    def end(self, result: Result | None) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
