"""How every client fares on its own test examples, after the last evaluation of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.contents import FARES
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.records import read_fares
from fedquilt.experiment.sealed import DamagedError, sealed_json
from fedquilt.round.evaluation import Counted


class ClientFares:
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
        write_whole(folder.path / FARES, sealed_json(about).encode())


def read_accuracies(path: Path) -> list[float] | None:
    """Return the clients' accuracies of a run folder, or nothing where there are none or they are damaged."""
    try:
        return read_fares((path / FARES).read_bytes())
    except (OSError, DamagedError):
        return None
