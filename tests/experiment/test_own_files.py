"""Files of the user's own that a spec names: in the working directory, beside the spec, below the data folders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from sample_data.images import write_images
from sample_data.texts import several_posts, write_leaf, write_posts

import fedquilt
from fedquilt.base.errors import SpecError
from fedquilt.experiment.spec import load_spec

LOADER = """
from pathlib import Path
import fedquilt

def load(file: Path):
    return fedquilt.table(file, label="kind")
"""
ROWS = "a,b,kind\n" + "".join(f"{k % 5},{k % 7},{k % 2}\n" for k in range(40))


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """A working directory, a folder with a spec, and a data folder."""
    made = tuple(tmp_path / name for name in ("work", "specs", "data"))
    for place in made:
        place.mkdir()
    monkeypatch.chdir(made[0])
    monkeypatch.setenv("FEDQUILT_DATA", str(made[2]))
    monkeypatch.setattr(sys, "path", sys.path[:])
    return made  # type: ignore[return-value]


def write_spec(folder: Path, **tables: Any) -> Path:
    spec = {
        "run": {"rounds": 1},
        "data": {"name": "table", "path": "own/rows.csv", "label": "kind"},
        "partition": {"name": "iid", "clients": 4},
        "model": {"name": "softmax_regression", "inputs": 2, "classes": 2},
        "method": {"name": "fed_avg"},
        "engine": {"name": "inline"},
    }
    (folder / "spec.toml").write_text(tomli_w.dumps(spec | tables))
    return folder / "spec.toml"


def put(folder: Path, rows: int) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "rows.csv").write_text("\n".join(ROWS.splitlines()[: rows + 1]) + "\n")


def test_the_working_directory_comes_first_then_the_spec_then_the_data_folders(
    places: tuple[Path, Path, Path],
) -> None:
    work, specs, data = places
    spec = write_spec(specs)
    with pytest.raises(SpecError) as told:
        fedquilt.run(spec)
    assert str(told.value) == (
        f"{spec}: [data] own/rows.csv: no such file or folder; looked for: own/rows.csv, {specs}/own/rows.csv, "
        f"{data}/own/rows.csv"
    )
    for folder, rows in ((data, 40), (specs, 30), (work, 20)):
        put(folder, rows)
        assert len(fedquilt.inspect_partition(spec).data.train) == rows * 4 // 5


def test_a_resumed_run_finds_them_again_from_anywhere(
    places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, specs, data = places
    put(specs, 40)
    first = fedquilt.run(write_spec(specs), out="run")
    monkeypatch.chdir(data)
    again = fedquilt.resume(work / "run", rounds=2)
    assert len(again.result.history) == 2
    assert again.result.history.records[0] == first.result.history.records[0]
    assert fedquilt.evaluate(work / "run")["examples"] == 8


def test_in_a_sweep(places: tuple[Path, Path, Path]) -> None:
    _, specs, _ = places
    put(specs, 40)
    (specs / "more.csv").write_text(ROWS)
    done = fedquilt.sweep(write_spec(specs, grid={"data.path": ["own/rows.csv", "more.csv"]}), out="runs")
    first, second = (row.loss for row in done.trials)
    assert first is not None
    assert first == second, "both have the same rows"


def test_every_kind_of_file(places: tuple[Path, Path, Path]) -> None:
    """Posts, LEAF's folder, images with their table, a stored partition, and a function of one's own that takes a Path."""
    _, specs, _ = places
    write_posts(specs / "posts.jsonl", several_posts(6))
    write_leaf(specs / "leaf" / "all_data" / "a.json", {"a": (np.eye(4).tolist(), [0, 1, 0, 1])})
    write_images(specs / "pictures")
    put(specs, 40)
    (specs / "own_loader.py").write_text(LOADER)
    for table in (
        {"name": "posts", "path": "posts.jsonl", "vocabulary": 20},
        {"name": "leaf", "folder": "leaf", "test_fraction": 0.5},
        {"name": "image_folder", "folder": "pictures/own", "table": "pictures/own.csv", "size": 8},
        {"name": "own_loader:load", "file": "own/rows.csv"},
    ):
        spec = write_spec(specs, data=table, partition={"name": "iid", "clients": 2})
        assert fedquilt.inspect_partition(spec, out=specs / "shown").skew.summary()["clients"] == 2
    stored = write_spec(specs, data=table, partition={"name": "stored", "path": "shown/partition.npz"})
    assert fedquilt.inspect_partition(stored).skew.summary()["clients"] == 2
    missing = write_spec(specs, data=table, partition={"name": "stored", "path": "gone.npz"})
    with pytest.raises(SpecError, match=rf"\[partition\] gone.npz: no such file .*{specs}/gone.npz"):
        fedquilt.inspect_partition(missing)


def test_a_saved_data_set_of_the_hugging_face_library(
    places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("datasets", reason="needs the extra hugging_face")
    library.disable_progress_bars()
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    _, specs, _ = places
    columns = {"a": list(range(20)), "label": [k % 2 for k in range(20)]}
    library.Dataset.from_dict(columns).save_to_disk(specs / "saved")
    spec = write_spec(specs, data={"name": "hugging_face", "path": "saved"})
    assert len(fedquilt.inspect_partition(spec).data.train) == 16
    spec = write_spec(specs, data={"name": "hugging_face", "path": "gone"})
    with pytest.raises(SpecError, match=rf"cannot be loaded: .*; looked for a saved one at: gone, {specs}/gone, "):
        fedquilt.inspect_partition(spec)


def test_what_is_in_a_data_folder_stays_relative(places: tuple[Path, Path, Path]) -> None:
    _, specs, data = places
    put(data, 40)
    fedquilt.run(write_spec(specs), out="run")
    assert 'path = "own/rows.csv"' in Path("run/spec.toml").read_text()


def test_the_first_values_of_a_model_are_looked_for_in_the_same_order(places: tuple[Path, Path, Path]) -> None:
    work, specs, _ = places
    spec = write_spec(specs, run={"rounds": 1, "start": "first.safetensors"})
    for folder in (specs, work):  # the working directory's counts as soon as there is one
        (folder / "first.safetensors").write_bytes(b"")
        assert load_spec(spec).options.start == str(folder / "first.safetensors")
