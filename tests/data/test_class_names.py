"""Classes keep the names that their data set gives them: in the data, in pictures and in tables."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from sample_data.every_data_set import CASES

import fedquilt
from fedquilt.base.errors import DataError
from fedquilt.cli import app as cli
from fedquilt.data.data import Data, Split
from fedquilt.experiment.folder import RunFolder

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


def test_in_every_figure_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
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
    drawn = Path("out/classes.svg").read_text(encoding="utf-8")
    assert [name for name in sorted(PETS) if f">{name}</text>" in drawn] == ["_eel$x$", "cat", "dog", "fox"]
    marks = re.findall(r">class ([^<]*), 12 examples</text>", Path("out/map.svg").read_text(encoding="utf-8"))
    assert len(marks) == 2
    assert set(marks) <= set(PETS)
    about = json.loads(call("--json"))
    assert {held["class"]: held["examples"] for held in about["class_examples"]} == dict.fromkeys(PETS, 12)


def test_in_the_folder_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(ROWS)
    tables = {
        "data": {"name": "table", "path": "a.csv", "label": "pet"},
        "partition": {"name": "iid", "clients": 4},
        "model": {"name": "softmax_regression", "inputs": 1, "classes": 4},
        "method": {"name": "fed_avg", "lr": 0.01},
        "run": {"rounds": 1},
        "engine": {"name": "inline"},
    }
    held = RunFolder(fedquilt.run(tables, out="run").folder).read().holdings
    assert held is not None
    assert held.class_names == ("_eel$x$", "cat", "dog", "fox")
