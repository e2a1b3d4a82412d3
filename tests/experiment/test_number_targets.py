"""Targets that are numbers, from a spec to the trained model, through the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import fedquilt
from fedquilt.cli import app as cli

SPEC = {
    "run": {"rounds": 30, "loss": "mean_squared_error"},
    "data": {"name": "table", "path": "flats.csv", "label": "rent", "client": "agency", "classes": 0}
    | {"latitude": "lat", "longitude": "lon"},
    "partition": {"name": "natural"},
    "model": {"name": "softmax_regression", "inputs": 2, "classes": 1},
    "method": {"name": "fed_avg", "lr": 0.1, "fraction": 0.5},
    "engine": {"name": "processes", "workers": 2},
}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command beside a spec and a table of rents, which are 3·metres − floor + 2 and noise of deviation 0.1."""
    rng = np.random.default_rng(0)
    lines = ["metres,floor,rent,agency,lat,lon"]
    for k in range(120):
        metres, floor = rng.normal(size=2)
        lines.append(f"{metres},{floor},{3 * metres - floor + 2 + 0.1 * rng.normal()},{k % 6},{40 + k % 6},{k % 9}")
    (tmp_path / "flats.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(SPEC))
    monkeypatch.chdir(tmp_path)

    def command(*words: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["fedquilt", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert ended.value.code == code, err
        return out if code == 0 else err

    return command


def test_a_run_is_trained_evaluated_and_shown(call: Callable[..., str]) -> None:
    call("run", "spec.toml", "--out", "run")
    found = json.loads(call("evaluate", "run", "--json"))
    assert found["loss"] == pytest.approx(0.01, rel=0.8), "the variance of the noise is what is left"
    assert found["accuracy"] is None
    assert "loss" in call("show", "run")
    weights = fedquilt.run(SPEC, out="again").result.model.state_dict()
    assert [tensor.tolist() for tensor in weights.values()] == [
        [pytest.approx([3, -1], abs=0.1)],
        pytest.approx([2], abs=0.1),
    ]


def test_a_population_is_shown_without_classes(call: Callable[..., str]) -> None:
    about = json.loads(call("partition", "spec.toml", "--json", "--out", "here"))
    assert (about["clients"], about["examples"], about["size_least"]) == (6, 96, 16)
    assert not {"classes", "emd", "label_entropy"} & set(about)
    drawn = [f"{name}.{kind}" for name in ("sizes", "map") for kind in ("svg", "pdf", "png")]
    assert [Path(file).name for file in about["files"]] == [*drawn, "partition.npz"]
    assert all(Path(file).is_file() for file in about["files"])
    text = call("partition", "spec.toml")
    assert "examples of a client, median" in text
    assert "class" not in text
    changed = {"partition.name=stored", "partition.path=here/partition.npz"}
    sets = [word for change in changed for word in ("--set", change)]
    assert json.loads(call("partition", "spec.toml", "--json", *sets))["clients"] == 6
    text = Path("flats.csv").read_text().replace("\n", "1\n", 3).replace("lon1", "lon")
    Path("flats.csv").write_text(text.replace(text.splitlines()[5].split(",")[2], "0.25"))
    assert "was made for another data set" in call("partition", "spec.toml", *sets, code=2)


def test_what_needs_classes_says_so(call: Callable[..., str]) -> None:
    told = call("partition", "spec.toml", "--set", "partition.name=shards", "--set", "partition.clients=4", code=2)
    assert "[partition] needs one class per example, but this data set has numerical targets" in " ".join(told.split())
    told = call("run", "spec.toml", "--set", "run.loss=cross_entropy", "--out", "run", code=2)
    assert 'these targets are numbers: use "mean_squared_error"' in " ".join(told.split())


def test_a_run_whose_data_changed_is_not_made_longer_and_stays_as_it_was(call: Callable[..., str]) -> None:
    call("run", "spec.toml", "--out", "run", "--set", "run.rounds=2")
    before = Path("run/spec.toml").read_text()
    lines = Path("flats.csv").read_text().splitlines()
    Path("flats.csv").write_text("\n".join([lines[0], "0,0,0,0,40,0", *lines[2:]]) + "\n")
    said = call("resume", "run", "--rounds", "3", code=2)
    assert "a file of the data, the source of your own model or method, or a value" in said
    assert Path("run/spec.toml").read_text() == before
    assert "finished" in call("show", "run")
