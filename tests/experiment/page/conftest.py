"""An experiment that was run, and a Chromium to look at its page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.experiment.run import run

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

TABLES: dict[str, Any] = {
    "experiment": {
        "title": "Momentum <b>&</b> skew",
        "source": "Nobody 2019",
        "rows": ["method"],
        "columns": ["alpha"],
    },
    "run": {"rounds": 4},
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 8, "own_test": True},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "lr": 0.1},
    "engine": {"name": "inline"},
    "case": {"method": {"FedAvg": {"method": {"name": "fed_avg"}}, "FedAvgM": {"method": {"name": "fed_avg_m"}}}},
    "grid": {"partition.alpha": [0.5, 100.0]},
    "tune": {"by": "test", "method.lr": [0.05, 0.2]},
    "repeat": {"run.seed": [1, 2]},
    "significance": {"across": ["method"]},
    "published": [
        {
            "source": "Table 9",
            "unit": "%",
            "values": {"FedAvg": {"0.5": 1, "100": "85.0 ± 9"}, "FedAvgM": {"0.5": 88, "100": 90}},
        }
    ],
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment of 16 trials, all run; tests must not change it."""
    folder = tmp_path_factory.mktemp("experiment")
    experiment = fedquilt.experiment(TABLES)
    (folder / "experiment.toml").write_text(experiment.to_toml())
    for trial in experiment.trials:
        run(trial.spec, out=folder / trial.name)
    return folder


@pytest.fixture
def experiment_folder(finished: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(finished, tmp_path / "experiment"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium of this machine; without one, pages are not tested."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra dev")
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.skip("needs Chromium: none is on the PATH")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()
