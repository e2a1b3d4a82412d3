"""Classes keep the names that their data set gives them: in the data, in pictures and in tables."""

from __future__ import annotations

import json
import string
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from formats.every_data_set import CASES
from matplotlib.figure import Figure

import fedquilt
from fedquilt.base.errors import DataError
from fedquilt.cli import app as cli
from fedquilt.data.data import Data, Split
from fedquilt.experiment import plots, population_plots
from fedquilt.partition.partition import Partition

PETS = ["cat", "dog", "_eel$x$", "fox"]
ROWS = "x,pet\n" + "".join(f"{row},{PETS[row % 4]}\n" for row in range(40))


def test_of_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROWS)
    assert fedquilt.table(tmp_path / "a.csv", label="pet").class_names == ("_eel$x$", "cat", "dog", "fox")
    more = fedquilt.table(tmp_path / "a.csv", label="pet", classes=6)
    assert more.class_names == ("_eel$x$", "cat", "dog", "fox", "4", "5")
    assert fedquilt.table(tmp_path / "a.csv", label="x", features=("x",), test=tmp_path / "a.csv").class_names is None


def test_of_libsvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    assert CASES["libsvm"].write(tmp_path, monkeypatch)().class_names == ("1", "2", "3", "4", "5", "7")


def test_of_the_hugging_face_library(tmp_path: Path) -> None:
    library = pytest.importorskip("datasets", reason="needs the extra hugging_face")
    library.disable_progress_bars()
    features = library.Features({"x": library.Value("float32"), "label": library.ClassLabel(names=PETS)})
    values = {"x": [0.0] * 9, "label": [0, 1, 2] * 3}
    library.Dataset.from_dict(values, features=features).save_to_disk(tmp_path / "numbered")
    data = fedquilt.hugging_face(tmp_path / "numbered", test_fraction=0.4)
    assert (data.classes, data.class_names) == (3, ("cat", "dog", "_eel$x$"))
    library.Dataset.from_dict({"x": [0.0] * 8, "label": PETS * 2}).save_to_disk(tmp_path / "text")
    data = fedquilt.hugging_face(tmp_path / "text", test_fraction=0.5)
    assert data.class_names == ("_eel$x$", "cat", "dog", "fox")


def test_as_many_names_as_classes() -> None:
    split = Split(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(DataError, match="mine: has 2 classes, but 1 names for them"):
        Data("mine", split, split, 2, class_names=("cat",))


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """What is drawn, by the name of its file, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    drawn: dict[str, Figure] = {}
    original = plots.save

    def save(figure: Figure, path: Path) -> None:
        original(figure, path)
        figure.canvas.draw()
        drawn[path.name] = figure

    monkeypatch.setattr(plots, "save", save)
    monkeypatch.setattr(population_plots, "save", save)
    return drawn


def legend(figure: Figure) -> list[str]:
    found = figure.axes[0].get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


@pytest.mark.parametrize("classes", [2, 10, 26, 52])
def test_a_legend_lists_every_class_and_none_lies_on_another(figures: dict[str, Figure], classes: int) -> None:
    names = [f"_$species {letter}" for letter in string.ascii_letters[:classes]]
    draw = population_of(classes)
    plots.draw_clients(Path("a.png"), *draw, classes, names.__getitem__)
    figure = figures["a.png"]
    assert legend(figure) == names
    found = figure.axes[0].get_legend()
    assert found is not None
    boxes = [text.get_window_extent() for text in found.get_texts()]
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])
    width, height = figure.canvas.get_width_height()
    assert all(box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)
    assert figure.axes[0].get_window_extent().width > 0.4 * width


@pytest.mark.parametrize("classes", [62, 1203])
def test_a_scale_names_some_of_many_classes(figures: dict[str, Figure], classes: int) -> None:
    plots.draw_clients(Path("a.png"), *population_of(classes), classes, lambda number: f"species {number}")
    labels = [text.get_text() for text in figures["a.png"].axes[-1].get_yticklabels()]
    assert labels[0] == "species 0"
    assert labels[-1] == f"species {classes - 1}"
    assert len(labels) == plots.TICKS


def population_of(classes: int) -> tuple[Partition, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    labels = np.arange(3 * classes) % classes
    return fedquilt.iid(labels, clients=5), labels


SPEC = """
[data]
name = "table"
path = "a.csv"
label = "pet"
latitude = "north"
longitude = "east"
[partition]
name = "iid"
clients = 4
"""


def test_in_every_picture_and_table(
    figures: dict[str, Figure], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (f"{row},{PETS[row % 4]},{row},{3 * row}\n" for row in range(60))
    Path("a.csv").write_text("x,pet,north,east\n" + "".join(rows))
    Path("spec.toml").write_text(SPEC)

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fedquilt", "partition", "spec.toml", "--out", "out", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        return capsys.readouterr().out

    out = call()
    assert "largest classes, examples" in out
    assert "cat 12" in out
    assert legend(figures["classes.png"]) == ["_eel$x$", "cat", "dog", "fox"]
    marks = [text.get_text() for text in figures["map.png"].legends[0].get_texts()]
    assert len(marks) == 2
    assert all(any(pet.replace("$", r"\$") in mark for pet in PETS) for mark in marks)
    about = json.loads(call("--json"))
    assert {held["class"]: held["examples"] for held in about["class_examples"]} == dict.fromkeys(PETS, 12)


def test_in_the_picture_of_a_run(figures: dict[str, Figure]) -> None:
    Path("a.csv").write_text(ROWS)
    tables = {
        "data": {"name": "table", "path": "a.csv", "label": "pet"},
        "partition": {"name": "iid", "clients": 4},
        "model": {"name": "softmax_regression", "inputs": 1, "classes": 4},
        "method": {"name": "fed_avg", "lr": 0.01},
        "run": {"rounds": 1},
        "engine": {"name": "inline"},
    }
    fedquilt.run(tables, out="run")
    assert legend(figures["clients.png"]) == ["_eel$x$", "cat", "dog", "fox"]
