"""Looking at a population: the command, the pictures, the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.analysis.skew import skew
from fedquilt.base.errors import SpecError
from fedquilt.cli import app as cli
from fedquilt.data.data import Data, Split
from fedquilt.experiment.page.population import population_figures

SPEC = """
[data]
name = "digits"
[partition]
name = "shards"
clients = 30
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedquilt", "partition", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()  # type: ignore[return-value]

    return command


def is_picture(path: Path) -> bool:
    return path.read_bytes()[:4] == b"\x89PNG"


def test_data_and_partition_are_enough(call) -> None:
    code, out, _ = call("spec.toml")
    assert code == 0
    for words in ("clients", "EMD (Hsu 2020)", "try fed_avg_m", "Wrote runs/spec-partition/classes.svg, .pdf, .png"):
        assert words in out
    assert all(is_picture(Path("runs/spec-partition") / name) for name in ("classes.png", "emd.png", "ranks.png"))


def test_json_says_what_the_functions_do(call) -> None:
    code, out, _ = call("spec.toml", "--json", "--out", "here", "--set", "partition.clients=15")
    about = json.loads(out)
    labels = fedquilt.digits().train.y.numpy()
    assert code == 0
    assert about["clients"] == 15
    assert about["emd"] == pytest.approx(skew(fedquilt.shards(labels, clients=15), labels).summary()["emd"])
    assert about["advice"][0]["methods"] == ["fed_avg_m"]
    again = fedquilt.stored(Path("here/partition.npz"), labels)
    assert np.array_equal(again.indices, fedquilt.shards(labels, clients=15).indices)


def test_a_whole_spec_will_do_too(call) -> None:
    Path("spec.toml").write_text(SPEC + '[run]\nrounds = 3\n[method]\nname = "what"\n[grid]\n"method.lr" = [1]\n')
    assert call("spec.toml", "--out", "here")[0] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data]\nname = 'digits'\n", r"spec.toml: [partition]: the table is missing"),
        (SPEC.replace("shards", "shard"), "no partition is called 'shard'"),
        (SPEC.replace("30", "0"), "[partition] clients: must be at least 1"),
        (SPEC.replace("30", "2000"), "cannot be cut from"),
        (SPEC.replace("digits", "mist"), "no data set is called 'mist'"),
    ],
)
def test_what_is_wrong_is_said(call, text: str, words: str) -> None:
    Path("spec.toml").write_text(text)
    code, _, err = call("spec.toml")
    assert code == 2
    assert words in " ".join(err.split())


def test_tables_from_python() -> None:
    tables: dict[str, dict[str, Any]] = {"data": {"name": "digits"}, "partition": {"name": "iid", "clients": 5}}
    assert fedquilt.inspect_partition(tables, ["partition.clients=7"]).about()["clients"] == 7
    assert tables["partition"]["clients"] == 5
    with pytest.raises(SpecError, match="the table is missing"):
        fedquilt.inspect_partition({"data": {"name": "digits"}})


@pytest.mark.parametrize("kind", ["places", "sequences", "many", "one"])
def test_pictures_of_other_data(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(0, 5, (60, 4) if kind == "sequences" else 60))
    coordinates = np.stack([rng.uniform(-90, 90, 60), rng.uniform(-180, 180, 60)], axis=1) if kind == "places" else None
    if coordinates is not None:
        coordinates[:3] = np.nan  # nobody knows where these were made
    split = Split(torch.zeros(60, 1), y, coordinates=coordinates)
    data = Data("some", split, split, classes=5)
    held = fedquilt.power_law(y.numpy(), clients=1 if kind == "one" else 60 if kind == "many" else 7)
    figures = population_figures(data, held, skew(held, y.numpy()))
    names = {"places": ["classes", "emd", "ranks", "map"], "sequences": ["sizes"]}
    assert [figure.name for figure in figures] == names.get(kind, ["classes", "emd", "ranks"])
    assert all(is_picture(file) for figure in figures for file in figure.write(tmp_path, ["png"]))
