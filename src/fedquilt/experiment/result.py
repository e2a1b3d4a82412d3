"""What a run ends with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from fedquilt.algorithm.state import RunState
from fedquilt.analysis.curves import History
from fedquilt.analysis.standing import WORDS, BestRound
from fedquilt.base.text import amount, clock, counted, figure, html_table
from fedquilt.compute.layout import ModelState
from fedquilt.experiment.fingerprint import digest
from fedquilt.round.federation import Federation
from fedquilt.round.server import Server


@dataclass(frozen=True, repr=False)
class Result:
    """A trained model and how it came about.

    A method that ends with several models, one for each group of clients, has them in `models`; `model` and `state` are
    then those of the first group. `run` is everything that the run carried: groups, server states, what clients keep.
    `diverged` says why a run ended as diverged, if it did (see `fedquilt.analysis.standing`); `stopped` why it ended
    before its last round, if it was asked to. `best` is the best round so far and what it is best by; with `keep = "best"`,
    `best_models` are the models of that round, and `best_model` the first of them.
    """

    history: History
    model: nn.Module
    state: ModelState
    digest: str
    interrupted: bool
    models: tuple[nn.Module, ...]
    run: RunState
    diverged: str | None = None
    stopped: str | None = None
    best: BestRound | None = None
    best_models: tuple[nn.Module, ...] = ()

    @property
    def best_model(self) -> nn.Module | None:
        """The model of the best round, where it is kept."""
        return self.best_models[0] if self.best_models else None

    def __repr__(self) -> str:
        """Say how it went, not all that is in it."""
        newest = self.history.newest or {}
        name = next((name for name in ("accuracy", "loss") if newest.get(name) is not None), None)
        score = "" if name is None else f", {name} {newest[name]:.4f}"
        score += ", diverged" if self.diverged else ""
        return f"Result({counted(self.run.round, 'round')}{score}, digest {self.digest[:12]}…)"

    def _repr_html_(self) -> str:
        """Show how it went, in a notebook."""
        about = {"rounds": str(self.run.round), **_scores(self.history.newest or {})}
        if self.best is not None:
            shown = figure(self.best.by.removeprefix("validation_"), self.best.value)
            about["best"] = f"{WORDS[self.best.by]} {shown} in round {self.best.round}"
        if self.diverged or self.stopped or self.interrupted:
            about["ended"] = self.diverged or self.stopped or "interrupted"
        about["time"] = clock(sum(record["seconds"] for record in self.history))
        moved = [sum(record[key] for record in self.history) for key in ("bytes_down", "bytes_up")]
        about["sent"] = f"{amount(moved[0])} down, {amount(moved[1])} up"
        about["digest"] = self.digest
        return html_table([], list(about.items()))


def _scores(record: dict[str, Any]) -> dict[str, str]:
    """Return accuracy, loss and other metrics of a record, as they are shown."""
    names = ("accuracy", "loss", "validation_accuracy", "validation_loss")
    found = {name: record.get(name) for name in names} | record.get("metrics", {})
    return {
        name.replace("_", " "): figure(name.removeprefix("validation_"), value)
        for name, value in found.items()
        if value is not None
    }


def result_of(
    federation: Federation | Server,
    history: History,
    run: RunState,
    interrupted: bool,
    diverged: str | None = None,
    stopped: str | None = None,
    best: BestRound | None = None,
    best_run: RunState | None = None,
) -> Result:
    """Return what a run ends with."""
    trained, kept = (
        tuple(federation.replica.finished(group.state.model) for group in groups)
        for groups in (run.groups, () if best_run is None else best_run.groups)
    )
    first = run.groups[0].state.model
    about = diverged, stopped, best, kept
    return Result(history, trained[0], first, digest(federation, run), interrupted, trained, run, *about)
