"""The accuracy of every client on its own test examples, after the last evaluation of a run."""

from __future__ import annotations

from collections.abc import Sequence

from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.contents import CLIENT_ACCURACIES
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.sealed import sealed_json
from fedquilt.round.evaluation import Counted


class ClientAccuracies:
    """Keeps the newest evaluation of clients, to be written when the run ends."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._newest: tuple[int, list[int], list[Counted]] | None = None

    def note(self, round_: int, clients: Sequence[int], counted: Sequence[Counted]) -> None:
        """Take in an evaluation."""
        self._newest = round_, list(clients), list(counted)

    def write(self, folder: RunFolder) -> None:
        """Write the newest evaluation, if there was one: clients, and right and all predictions of each."""
        if self._newest is None:
            return
        round_, clients, counted = self._newest
        about = {
            "round": round_,
            "clients": clients,
            "right": [part.right for part in counted],
            "predictions": [part.predictions for part in counted],
        }
        write_whole(folder.path / CLIENT_ACCURACIES, sealed_json(about).encode())
