"""Computes the figures that a file asks for from the models of its runs, and keeps the numbers beside them.

`<experiment's folder>/figures/<number>-<name>.json` holds what was computed, with the digests of the models that it was
computed from: it is computed again when they change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedquilt.algorithm.state import RunState
from fedquilt.analysis.feature_map import POINTS as EXAMPLES
from fedquilt.analysis.feature_map import feature_map
from fedquilt.analysis.interpolation import FIRST, LAST, POINTS, interpolate
from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.compute.layout import ModelState
from fedquilt.compute.pinned import pinned
from fedquilt.experiment.build import build
from fedquilt.experiment.checkpoint import load_frozen, write_whole
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.figures import FigureRequest, ModelOf
from fedquilt.experiment.export import stored
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.results.cells import Cell, cells_of
from fedquilt.experiment.results.outcome import NOT_RUN
from fedquilt.experiment.storage import storing
from fedquilt.round.federation import Federation

FOLDER = "figures"


@dataclass(frozen=True)
class FigureData:
    """The numbers of a figure, as JSON has them; or the problem for which there are none.

    - "interpolation": `theta`, `loss`, `accuracy`, `best_parent`, `split`.
    - "features": `panels`, each with `title`, `everyone`, `clients`, `discrepancy`, `explained`.
    - "population": `run`, the folder of the run whose population it is.
    """

    request: FigureRequest
    data: dict[str, Any]
    problem: str | None = None


def figures_of(experiment: Experiment, folder: str | Path) -> list[FigureData]:
    """Compute the figures of an experiment from the models in its folder; what cannot be had says why."""
    if not experiment.figures:
        return []
    cells = {cell.key[: len(experiment.axes)]: cell for cell in reversed(cells_of(experiment, folder))}
    found = []
    for number, request in enumerate(experiment.figures, 1):
        try:
            runs = [_run(cells[model.cell], model, Path(folder)) for model in request.models]
            found.append(FigureData(request, _kept(request, runs, Path(folder), number)))
        except FedquiltError as error:
            found.append(FigureData(request, {}, str(error)))
    return found


def _run(cell: Cell, model: ModelOf, folder: Path) -> RunFolder:
    if not cell.trials or cell.problem is not None:
        raise RunError(f"{', '.join(model.cell)}: {cell.problem or NOT_RUN}")
    return RunFolder(folder / cell.trials[0].name)


def _kept(request: FigureRequest, runs: Sequence[RunFolder], folder: Path, number: int) -> dict[str, Any]:
    """Return a figure's numbers as they were computed before, if the models are still the same; or compute them."""
    if request.name == "population":
        return {"run": str(runs[0].path)}
    states = [stored(run) for run in runs]
    of = {"request": json.loads(json.dumps(asdict(request))), "models": [about.get("model") for _, _, about in states]}
    path = folder / FOLDER / f"{number}-{request.name}.json"
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["of"] == of:
            return dict(before["data"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # it was not computed, or not by us
    with pinned():
        data = _computed(request, runs, [(path, state) for path, state, _ in states])
    with storing(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"of": of, "data": data}).encode())
    return data


def _computed(
    request: FigureRequest, runs: Sequence[RunFolder], states: Sequence[tuple[Path, RunState]]
) -> dict[str, Any]:
    if request.name == "interpolation":
        federation = _federation(runs[0], states[0][0])
        models = [_model_of(state, of, run) for (_, state), of, run in zip(states, request.models, runs, strict=True)]
        if models[0].vector.shape != models[1].vector.shape:
            raise RunError(f"{runs[0].path} and {runs[1].path}: their models are not of the same layers")
        points = request.points or POINTS
        theta = [FIRST + (LAST - FIRST) * index / max(points - 1, 1) for index in range(points)]
        line = interpolate(federation, models[0], models[1], request.split, theta)
        return {"split": request.split, **asdict(line)}
    panels = []
    for number, ((path, state), of, run) in enumerate(zip(states, request.models, runs, strict=True)):
        federation = _federation(run, path)
        count = request.points or EXAMPLES
        if number == 0 and request.initial:
            panels.append({"title": "before training", **asdict(feature_map(federation, federation.initial, count))})
        title = f"{', '.join(of.cell)}: round {state.round}" if of.cell else f"round {state.round}"
        panels.append({"title": title, **asdict(feature_map(federation, _model_of(state, of, run), count))})
    return {"panels": panels}


def _federation(run: RunFolder, checkpoint: Path) -> Federation:
    from fedquilt.experiment.run import read_spec

    federation, _ = build(read_spec(run))
    federation.replica.put_frozen(load_frozen(checkpoint))
    return federation


def _model_of(state: RunState, of: ModelOf, run: RunFolder) -> ModelState:
    """Return the model of a run, or of one of its clients."""
    if of.client is None:
        if len(state.groups) > 1:
            raise RunError(f"{run.path}: has {len(state.groups)} models: name a client whose model to take")
        return state.groups[0].state.model
    for group in state.groups:
        if group.clients is not None and of.client in group.clients:
            return group.state.model
    raise RunError(f"{run.path}: client {of.client} has no model of its own")
