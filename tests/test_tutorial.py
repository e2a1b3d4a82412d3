"""The tutorial notebook runs from top to bottom, and shows what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after all of its cells ran, in a folder of its own."""
    home = tmp_path_factory.mktemp("tutorial")
    # Where Jupyter keeps its connection files; a home that cannot be written to must not matter.
    os.environ.setdefault("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("jupyter")))
    notebook = nbformat.read(TUTORIAL, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=90, resources={"metadata": {"path": str(home)}})
    client.execute()
    return notebook, home


def texts(notebook, kind):
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output["data"][kind] for output in outputs if kind in output.get("data", {})]


@pytest.mark.filterwarnings("ignore")
def test_it_runs_and_shows_progress_tables_and_results(executed):
    notebook, home = executed
    pages = texts(notebook, "text/html")
    bars = [page for page in pages if "<progress" in page]
    assert len(bars) == 4  # a display for every call of train, kept up to date
    assert all('<progress value="30" max="30">' in bar and "round 30/30" in bar for bar in bars)
    (result,) = [page for page in pages if "<td>digest</td>" in page]
    assert "<td>validation accuracy</td>" in result
    assert "validation accuracy" in result
    assert sum('class="dataframe"' in page for page in pages) == 4
    assert {path.name for path in (home / "runs" / "tutorial").iterdir() if path.is_dir()} == {
        "FedAvg",
        "FedAvgM",
        "SCAFFOLD",
    }
    assert any("finished" in text for text in texts(notebook, "text/plain"))


def test_it_is_kept_without_outputs():
    """What it shows is shown by running it; kept outputs would become stale, and name the machine that they are from."""
    notebook = nbformat.read(TUTORIAL, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
