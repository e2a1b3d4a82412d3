"""What a search has proposed so far, kept beside its trials: whoever reads the results needs no search for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.base.errors import RunError
from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.sealed import DamagedError, sealed_json, unsealed_json

PROPOSALS = "proposals.json"


@dataclass(frozen=True)
class Proposal:
    """Tuned values that a search proposes for a cell; `given_up` before their runs came to the end."""

    cell: tuple[str, ...]
    tuned: dict[str, Any]
    given_up: bool = False


def write_proposals(folder: Path, proposals: Sequence[Proposal]) -> None:
    """Write what was proposed so far."""
    content = [{"cell": list(each.cell), "tuned": each.tuned, "given_up": each.given_up} for each in proposals]
    write_whole(folder / PROPOSALS, sealed_json({"proposals": content}, indent=1).encode())


def read_proposals(folder: Path) -> list[Proposal]:
    """Read what was proposed so far: nothing before the search has begun."""
    try:
        content = (folder / PROPOSALS).read_bytes()
        found = unsealed_json(content, indent=1)["proposals"]
        return [Proposal(tuple(each["cell"]), each["tuned"], each["given_up"]) for each in found]
    except FileNotFoundError:
        return []
    except (DamagedError, KeyError, TypeError) as error:
        raise RunError(
            f"{folder / PROPOSALS}: is damaged ({error}): delete it, and let `fedquilt sweep` write it again"
        ) from None


def proposed_trials(experiment: Experiment, folder: Path) -> list[Trial]:
    """Return the trials of proposals that were not given up, in the cells that there are."""
    proposals = [each for each in read_proposals(folder) if each.cell in experiment.cells and not each.given_up]
    repeats = range(experiment.blueprint.repeats)
    found = [experiment.trial(each.cell, each.tuned, repeat) for each in proposals for repeat in repeats]
    return list({trial.name: trial for trial in found}.values())
