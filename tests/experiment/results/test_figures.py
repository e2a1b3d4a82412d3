"""Figures that are no learning curves, from the models of real runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment.design.test_design import DIGITS
from experiment.results.real_runs import ran_in
from sklearn.decomposition import PCA

import fedquilt
from fedquilt import evaluate
from fedquilt.analysis.feature_map import principal_plane
from fedquilt.base.errors import SpecError
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.results.figures import figures_of

TABLES: dict[str, Any] = DIGITS | {
    "engine": {"name": "inline"},
    "partition": {"name": "shards", "clients": 4},
    "run": {"rounds": 2},
    "case": {"method": {"apart": {"method": {"name": "local_only"}}, "together": {}}},
    "figure": [
        {
            "name": "interpolation",
            "first": {"method": "together"},
            "second": {"method": "apart", "client": 2},
            "points": 8,
        },
        {"name": "features", "cell": {"method": "together"}, "points": 20},
        {"name": "population", "cell": {"method": "together"}},
        {"name": "interpolation", "first": {"method": "apart"}, "second": {"method": "together"}},
    ],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    return ran_in(tmp_path_factory.mktemp("experiment"), TABLES)


def test_the_loss_between_two_models(ran: tuple[Experiment, Path]) -> None:
    """Softmax regression is convex: so is its loss on the line, whose ends are the two models themselves."""
    experiment, folder = ran
    line = figures_of(experiment, folder)[0].data
    theta, loss = line["theta"], np.array(line["loss"])
    assert (theta[0], theta[-1], len(theta)) == (-0.2, pytest.approx(1.2), 8)
    assert np.all(np.diff(loss, 2) > -1e-6)
    at_one = np.isclose(theta, 1.0)
    assert at_one.sum() == 1
    together = evaluate(folder / "together", split="train")["loss"]
    assert loss[at_one][0] == pytest.approx(together, rel=1e-5)
    assert line["best_parent"] == pytest.approx(min(together, loss[np.isclose(theta, 0.0)][0]), rel=1e-5)


def test_features_of_clients_and_of_all(ran: tuple[Experiment, Path]) -> None:
    experiment, folder = ran
    panels = figures_of(experiment, folder)[1].data["panels"]
    assert [panel["title"] for panel in panels] == ["before training", "together: round 2"]
    panel = panels[1]
    centre = np.mean(panel["everyone"], axis=0)
    distances = [np.linalg.norm(np.mean(points, axis=0) - centre) for points in panel["clients"].values()]
    assert panel["discrepancy"] == pytest.approx(np.mean(distances))
    assert len(panel["clients"]) == 4
    assert 0 < panel["explained"] <= 1


def test_numbers_are_kept_until_the_models_change(ran: tuple[Experiment, Path]) -> None:
    experiment, folder = ran
    first = figures_of(experiment, folder)[0].data
    path = folder / "figures" / "1-interpolation.json"
    kept = json.loads(path.read_text())
    kept["data"]["best_parent"] = -1.0
    path.write_text(json.dumps(kept))
    assert figures_of(experiment, folder)[0].data["best_parent"] == -1.0, "read, not computed again"
    kept["of"]["models"][0] = "another"
    path.write_text(json.dumps(kept))
    assert figures_of(experiment, folder)[0].data["best_parent"] == first["best_parent"]
    path.write_text("damaged")
    assert figures_of(experiment, folder)[0].data["best_parent"] == first["best_parent"]


def test_what_cannot_be_had_says_why(ran: tuple[Experiment, Path], tmp_path: Path) -> None:
    experiment, folder = ran
    found = figures_of(experiment, folder)
    assert found[3].problem is not None
    assert found[3].problem.endswith("has 4 models: name a client whose model to take")
    assert found[2].data == {"run": str(folder / "together")}
    assert figures_of(experiment, tmp_path)[1].problem == "together: has not been run"


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        (
            {"name": "interpolations"},
            "[[figure]] 1 name: there is no figure 'interpolations'; did you mean 'interpolation'?",
        ),
        ({"name": "interpolation"}, "[[figure]] 1 first: say which model, by its case on every axis"),
        ({"name": "interpolation", "first": {}, "second": {}}, "[[figure]] 1 first: names 2 cells, and not one"),
        (
            {"name": "features"},
            "[[figure]] 1 cell: leaves method open: give its case, or draw a panel for each with along",
        ),
        ({"name": "features", "along": "methd"}, "[[figure]] 1 along: there is no axis methd; did you mean 'method'?"),
        ({"name": "population", "cell": {"method": "x"}}, "[[figure]] 1 cell: the axis method has no case 'x'"),
        ({"name": "population", "points": 3}, "[[figure]] 1 points: is not a key of population; known: cell"),
    ],
)
def test_figures_of_what_there_is_not(figure: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        fedquilt.experiment(TABLES | {"figure": [figure]})


def test_the_plane_is_that_of_principal_component_analysis() -> None:
    rows = np.random.default_rng(1).normal(size=(50, 6)) @ np.diag([5, 3, 1, 0.5, 0.2, 0.1])
    plane, explained = principal_plane(rows)
    expected = PCA(2).fit(rows)
    assert np.abs(plane) == pytest.approx(np.abs(expected.transform(rows)))
    assert explained == pytest.approx(expected.explained_variance_ratio_.sum())
