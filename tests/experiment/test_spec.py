"""Specs: defaults, changes from the command line, the way into the run folder and back, and the user's own parts."""

from __future__ import annotations

import copy
import json
import math
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedquilt
import fedquilt.models
from fedquilt.base.errors import SpecError
from fedquilt.base.rng import torch_seeded
from fedquilt.experiment.build import build
from fedquilt.experiment.changes import change
from fedquilt.experiment.spec import check_spec, load_spec
from fedquilt.experiment.template import TEMPLATE

SPEC: dict[str, dict[str, Any]] = {
    "run": {"rounds": 2},
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.5},
    "model": {"name": "softmax_regression", "inputs": 64},
    "method": {"name": "fed_avg", "fraction": 0.2},
}


def changed(**tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return copy.deepcopy(SPEC) | tables


# Defaults, and the round trip through a file


def test_defaults_are_filled_in() -> None:
    resolved = check_spec(SPEC).resolved()
    assert resolved["run"] == {
        "rounds": 2,
        "seed": 0,
        "eval_every": 1,
        "train_loss": False,
        "diagnose": False,
        "checkpoint_seconds": 10.0,
        "on_divergence": "stop",
        "keep": "last",
    }
    assert resolved["engine"] == {"name": "auto", "compute": "auto", "precision": "float32", "device": "cpu"}
    assert resolved["data"] == {"name": "digits", "test_fraction": 0.2, "seed": 0}
    assert resolved["partition"]["prior"] == "uniform"
    assert (resolved["method"]["lr"], resolved["method"]["batch"]) == (0.1, 10)
    assert list(resolved) == ["run", "data", "partition", "model", "method", "engine"]


def test_what_is_given_is_not_changed() -> None:
    tables = changed()
    check_spec(tables)
    assert tables == SPEC


def test_resolved_spec_comes_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "first.toml"
    path.write_text(TEMPLATE.format(name=path))
    first = load_spec(path, ["method.batch=inf", "partition.alpha=inf", "run.stop_at=0.9"])
    path.write_text(first.to_toml())
    again = load_spec(path)
    assert again.resolved() == first.resolved()
    assert again.to_toml() == first.to_toml()
    assert again.parts["method"].arguments["batch"] == math.inf


positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@given(
    lr=positive,
    fraction=st.floats(0, 1),
    batch=st.integers(1, 2**40) | st.just(math.inf),
    alpha=st.floats(min_value=0, allow_nan=False),
    seed=st.integers(0, 2**63 - 1),
    seconds=st.floats(min_value=0, allow_infinity=False),
)
def test_numbers_come_back_to_the_last_bit(
    lr: float, fraction: float, batch: float, alpha: float, seed: int, seconds: float
) -> None:
    tables = changed(
        run={"rounds": 1, "seed": seed, "checkpoint_seconds": seconds},
        partition={"name": "dirichlet", "clients": 3, "alpha": alpha, "seed": seed},
        method={"name": "fed_avg", "lr": lr, "fraction": fraction, "batch": batch},
    )
    first = check_spec(tables)
    again = check_spec(tomllib.loads(first.to_toml()))
    assert again.resolved() == first.resolved()
    method = again.parts["method"].arguments
    assert (method["lr"], method["fraction"], method["batch"]) == (lr, fraction, batch)
    assert (again.options.seed, again.parts["partition"].arguments["alpha"]) == (seed, alpha)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_text_comes_back(text: str) -> None:
    first = check_spec(changed(data={"name": "table", "path": "x.csv", "label": text}))
    assert tomllib.loads(first.to_toml())["data"]["label"] == text


def test_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_text(check_spec(SPEC).to_toml(), encoding="utf-8-sig")
    assert load_spec(path).resolved() == check_spec(SPEC).resolved()


def test_values_without_a_form_in_toml_are_refused() -> None:
    """They can come from Python only, and a run that could not be resumed must not start."""
    tables = changed(model={"name": "builtins:dict", "activation": math.sqrt})
    with pytest.raises(SpecError, match=r"cannot be written as TOML.*fedquilt\.train"):
        check_spec(tables).to_toml()


# Changes from the command line


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("method.lr=0.05", 0.05),
        ("method.lr = 1e-3 ", 1e-3),
        ("method.epochs=5", 5),
        ("method.batch=inf", math.inf),
        ("method.reshuffle=false", False),
        ("method.name=fed_sgd", "fed_sgd"),
        ('method.name="fed_sgd"', "fed_sgd"),
        ("method.name=my_methods:mine", "my_methods:mine"),
        ("method.rates=[0.1, 0.2]", [0.1, 0.2]),
        ("method.note=a=b", "a=b"),
        ("method.note=", ""),
    ],
)
def test_assignments(assignment: str, value: object) -> None:
    tables: dict[str, Any] = {"method": {"lr": 0.1}}
    change(tables, [assignment])
    key = assignment.partition("=")[0].strip().removeprefix("method.")
    assert tables["method"][key] == value
    assert type(tables["method"][key]) is type(value)


@given(st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_assigned_to_the_last_bit(value: float) -> None:
    tables: dict[str, Any] = {}
    change(tables, [f"method.lr={value!r}"])
    assert tables == {"method": {"lr": value}}


def test_assignments_can_add_a_table(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(check_spec(SPEC).to_toml())
    spec = load_spec(path, ["engine.name=inline", "run.rounds=7", "run.rounds=8"])
    assert (spec.parts["engine"].name, spec.options.rounds) == ("inline", 8)


# The user's own parts, from files beside the spec

OWN = """
from pathlib import Path

import numpy as np
from torch import nn

import fedquilt
import fedquilt.models


class Net(nn.Module):
    def __init__(self, hidden: int, activation=nn.Tanh, shape: tuple[int, int] = (8, 8)):
        super().__init__()
        inputs = shape[0] * shape[1]
        layers = nn.Linear(inputs, hidden), activation(), nn.Linear(hidden, 2)
        self.layers = nn.Sequential(nn.Flatten(), *layers)

    def forward(self, x):
        return self.layers(x)


def halves(folder: Path, count: int = 40):
    assert isinstance(folder, Path)
    x = np.random.default_rng(0).normal(size=(count, 8, 8))
    y = (x[:, 0, 0] > 0).astype("int64")
    return fedquilt.arrays(x[:-10], y[:-10], x[-10:], y[-10:], name="halves")


def odd_and_even(labels):
    everyone = np.arange(len(labels))
    return fedquilt.Partition.of([everyone[::2], everyone[1::2]])


def gentle(factor: float = 0.1):
    return fedquilt.fed_avg(lr=factor, fraction=1.0)


def fitting(data, hidden: int = 3):
    return Net(hidden, shape=tuple(data.train.x.shape[1:]))


class FittingNet(Net):
    def __init__(self, hidden: int = 3, *, data: fedquilt.Data):
        super().__init__(hidden, shape=tuple(data.train.x.shape[1:]))


def anything(**arguments):
    assert set(arguments) == {"hidden"}
    return Net(**arguments)
"""


@pytest.fixture
def own_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "own_federation", raising=False)
    (tmp_path / "own_federation.py").write_text(OWN)
    path = tmp_path / "own.toml"
    path.write_text(
        """
        [run]
        rounds = 2
        [data]
        name = "own_federation:halves"
        folder = "anywhere"
        [partition]
        name = "own_federation:odd_and_even"
        [model]
        name = "own_federation:Net"
        hidden = 3
        shape = [8, 8]
        [method]
        name = "own_federation:gentle"
        [engine]
        name = "inline"
        """
    )
    return path


def test_own_parts_are_found_beside_the_spec(own_spec: Path) -> None:
    federation, _ = build(load_spec(own_spec))
    assert federation.data.name == "halves"
    assert federation.partition.sizes.tolist() == [15, 15]
    assert federation.partition.client(0).tolist() == list(range(0, 30, 2))
    assert federation.layout.size == 64 * 3 + 3 + 3 * 2 + 2
    assert federation.algorithm.name == "fed_avg"


@pytest.mark.parametrize("name", ["fitting", "FittingNet", "anything"])
def test_own_models_that_ask_for_the_data_get_it(own_spec: Path, name: str) -> None:
    text = own_spec.read_text().replace("own_federation:Net", f"own_federation:{name}").replace("shape = [8, 8]", "")
    own_spec.write_text(text)
    spec = load_spec(own_spec)
    assert spec.resolved()["model"] == {"name": f"own_federation:{name}", "hidden": 3}
    federation, _ = build(spec)
    assert federation.layout.size == 64 * 3 + 3 + 3 * 2 + 2


def test_registered_models_that_ask_for_the_data_get_it() -> None:
    model = {"name": "random_fourier", "inputs": 64, "features": 4, "sigma": "median", "learn_features": False}
    spec = check_spec(changed(model=model))
    assert "data" not in spec.resolved()["model"]
    federation, _ = build(spec)
    frequencies = federation.replica.module.get_parameter("frequencies")
    with torch_seeded(spec.options.seed, "initialise"):
        again = fedquilt.models.random_fourier(64, 4, sigma="median", data=federation.data)
    assert torch.equal(frequencies, again.get_parameter("frequencies"))


def test_the_data_of_a_model_are_not_a_key() -> None:
    with pytest.raises(SpecError, match=r"\[model\] data: unknown key"):
        check_spec(changed(model={"name": "random_fourier", "data": "digits"}))


def test_own_parts_are_written_as_toml_and_found_again(own_spec: Path) -> None:
    spec = load_spec(own_spec)
    again = check_spec(tomllib.loads(spec.to_toml()))
    assert again.options.import_from == str(own_spec.parent)
    assert again.resolved()["data"] == {"name": "own_federation:halves", "folder": "anywhere", "count": 40}
    assert "activation" not in again.resolved()["model"], "a class has no form in TOML, and is the default anyway"
    assert again.to_toml() == spec.to_toml()


def test_run_of_own_parts_can_be_resumed_from_elsewhere(
    own_spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fedquilt.run(own_spec, ["run.rounds=3"], out=tmp_path / "whole")
    fedquilt.run(own_spec, out=tmp_path / "part")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert fedquilt.resume(tmp_path / "part", rounds=3).result.digest == whole.result.digest


def test_folder_to_import_from_is_beside_the_spec(own_spec: Path) -> None:
    deeper = own_spec.parent / "deeper"
    deeper.mkdir()
    spec = deeper / "own.toml"
    spec.write_text(own_spec.read_text().replace("rounds = 2", 'rounds = 2\nimport_from = ".."'))
    assert load_spec(spec).parts["model"].name == "own_federation:Net"


# The run folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> fedquilt.Run:
    tables = changed(
        run={"rounds": 3, "eval_every": 2, "train_loss": True, "seed": 5, "checkpoint_seconds": 0.0},
        engine={"name": "inline"},
    )
    return fedquilt.run(tables, out=tmp_path_factory.mktemp("runs") / "finished")


def test_run_folder_has_the_resolved_spec(finished: fedquilt.Run) -> None:
    tables = tomllib.loads((finished.folder / "spec.toml").read_text(encoding="utf-8"))
    assert tables["run"]["seed"] == 5
    assert tables["method"]["epochs"] == 1
    assert check_spec(tables).resolved() == tables


def test_run_folder_has_the_environment(finished: fedquilt.Run) -> None:
    environment = json.loads((finished.folder / "environment.json").read_text(encoding="utf-8"))
    assert environment["fedquilt"] == fedquilt.__version__
    assert environment["python"] == ".".join(map(str, sys.version_info[:3]))
    assert environment["packages"]["numpy"] == np.__version__
    assert {"commit", "system", "processor", "cores", "memory_gib", "threads_per_worker"} <= environment.keys()


def test_run_folder_has_a_record_of_every_round(finished: fedquilt.Run) -> None:
    lines = (finished.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        assert len(record.pop("check")) == 16
    assert records == finished.result.history.records
    assert [record["round"] for record in records] == [1, 2, 3]
    for record in records:
        assert record.keys() == {
            "round",
            "accuracy",
            "loss",
            "train_loss",
            "local_loss",
            "clients",
            "dropped",
            "applied",
            "steps",
            "examples",
            "batches",
            "gradients",
            "bytes_down",
            "bytes_up",
            "seconds",
        }
        assert len(record["clients"]) == 2
        assert record["dropped"] == []
        assert record["bytes_down"] == record["bytes_up"] == 2 * 650 * 4
        assert record["steps"] == sum(math.ceil(size / 10) for size in _sizes(record["clients"]))
        assert record["examples"] == sum(_sizes(record["clients"]))
        assert record["local_loss"] > 0
        assert record["seconds"] >= 0
    for key in ("accuracy", "loss", "train_loss"):
        assert [record[key] is None for record in records] == [True, False, False], "every second round, and the last"


def _sizes(clients: list[int]) -> list[int]:
    labels = fedquilt.digits().train.y.numpy()
    sizes = fedquilt.dirichlet(labels, clients=10, alpha=0.5).sizes
    return [int(sizes[client]) for client in clients]


def test_run_folder_has_checkpoints(finished: fedquilt.Run) -> None:
    names = sorted(path.name for path in (finished.folder / "checkpoints").iterdir())
    assert names == ["round-00000002.safetensors", "round-00000003.safetensors"], "the two newest"


def test_every_registered_name_can_stand_in_a_spec() -> None:
    tables = changed(engine={"name": "inline"})
    for method in ("centralised", "fed_avg", "fed_avg_m", "fed_sgd"):
        assert check_spec(tables | {"method": {"name": method}}).parts["method"].name == method


WRAPPED = """
[run]
rounds = 2
[data]
name = "digits"
[partition]
name = "iid"
clients = 10
[model]
name = "softmax_regression"
inputs = 64
[method]
name = "fed_avg_m"
batch = 16
[engine]
name = "inline"
[[wrap]]
name = "fed_vc"
size = 32
[[wrap]]
name = "fed_prox"
mu = 0.1
"""


def test_wrappers_are_applied_in_order_and_written_into_the_run_folder(tmp_path: Path) -> None:
    (tmp_path / "wrapped.toml").write_text(WRAPPED)
    ended = fedquilt.run(tmp_path / "wrapped.toml", out=tmp_path / "run")
    assert [record["examples"] for record in ended.result.history] == [32, 32]
    again = fedquilt.run(load_spec(tmp_path / "run" / "spec.toml"), out=tmp_path / "again")
    assert again.result.digest == ended.result.digest
    longer = fedquilt.resume(tmp_path / "run", rounds=3)
    assert len(longer.result.history) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('name = "fed_vx"', "[wrap 1] name: no wrapper is called 'fed_vx'; did you mean 'fed_vc'?"),
        ('name = "fed_vc"\nsizes = 3', "[wrap 1] sizes: unknown key; did you mean 'size'? (known: distinct, size)"),
        ('name = "fed_vc"\ndistinct = 1', "[wrap 1] distinct: must be true or false, got 1"),
    ],
)
def test_wrong_wrappers_are_refused(tmp_path: Path, change: str, message: str) -> None:
    (tmp_path / "wrapped.toml").write_text(WRAPPED.replace('name = "fed_vc"', change))
    with pytest.raises(SpecError) as caught:
        fedquilt.run(tmp_path / "wrapped.toml", out=tmp_path / "run")
    assert message in str(caught.value)


def test_a_wrapper_that_does_not_fit_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "wrapped.toml").write_text(WRAPPED.replace("size = 32", "size = 33"))
    with pytest.raises(
        SpecError, match=r"wrapped.toml: \[wrap 1\] fed_vc: size: must be a multiple of the method's batch size"
    ):
        fedquilt.run(tmp_path / "wrapped.toml", out=tmp_path / "run")


def test_one_table_is_not_an_array_of_them(tmp_path: Path) -> None:
    (tmp_path / "wrapped.toml").write_text(WRAPPED.replace("[[wrap]]", "[wrap]", 1).split("[[wrap]]")[0])
    with pytest.raises(SpecError, match=r"wrap: must be an array of tables, written as \[\[wrap\]\]"):
        load_spec(tmp_path / "wrapped.toml")


def test_simulations_have_a_table_of_their_own(tmp_path: Path) -> None:
    text = WRAPPED + '[[simulate]]\nname = "dropout"\nprobability = 0.5\n'
    (tmp_path / "simulated.toml").write_text(text)
    ended = fedquilt.run(tmp_path / "simulated.toml", ["simulate.1.probability=0.9"], out=tmp_path / "run")
    assert load_spec(tmp_path / "run" / "spec.toml").resolved()["simulate"] == [{"name": "dropout", "probability": 0.9}]
    assert any("absent" in record for record in ended.result.history)
    assert fedquilt.resume(tmp_path / "run", rounds=3).result.history.records[:2] == ended.result.history.records


@pytest.mark.parametrize(
    ("table", "name", "message"),
    [
        (
            "wrap",
            "dropout",
            "[wrap 3] name: 'dropout' simulates how clients behave, and is not part of a method: write",
        ),
        ("simulate", "fed_prox", "[simulate 1] name: 'fed_prox' changes a method: write it as [[wrap]]"),
        ("simulate", "dropuot", "[simulate 1] name: no simulation is called 'dropuot'; did you mean 'dropout'?"),
    ],
)
def test_what_stands_in_the_wrong_table_is_told_the_right_one(
    tmp_path: Path, table: str, name: str, message: str
) -> None:
    (tmp_path / "spec.toml").write_text(WRAPPED + f'[[{table}]]\nname = "{name}"\n')
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "spec.toml")
    assert message in str(caught.value)


@pytest.mark.parametrize("takes", [fedquilt.run, fedquilt.inspect_partition])
@pytest.mark.parametrize("changes", [{"sets": ["run.rounds=1"]}, {"unsets": ["method.fraction"]}])
def test_a_spec_that_was_read_cannot_be_changed(takes: Any, changes: dict[str, list[str]]) -> None:
    with pytest.raises(SpecError, match="a Spec cannot be changed any more; give changes with the file, or its tables"):
        takes(check_spec(changed()), **changes)
