"""A run's model afterwards: measured on its own and other data, and written to a file that plain PyTorch loads."""

from __future__ import annotations

import copy
import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import tomli_w
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import fedquilt
from fedquilt.base.errors import FedquiltError, RunError, SpecError
from fedquilt.data.data import Data
from fedquilt.experiment.sealed import sealed_text
from fedquilt.models import mnist_2nn
from fedquilt.partition.partition import Partition

SPEC: dict[str, Any] = {
    "run": {"rounds": 3, "seed": 1, "metrics": ["accuracy", "top5", "perplexity"], "checkpoint_seconds": 0},
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 20, "alpha": 0.5},
    "model": {"name": "mnist_2nn", "inputs": 64, "hidden": 16},
    "method": {"name": "fed_avg", "fraction": 0.3},
    "engine": {"name": "inline"},
}


def changed(**tables: dict[str, Any]) -> dict[str, Any]:
    spec = copy.deepcopy(SPEC)
    for name, table in tables.items():
        spec[name] = spec.get(name, {}) | table if isinstance(table, dict) else table
    return spec


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, fedquilt.Result]:
    """A run of the spec, and its result."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    return folder, fedquilt.run(SPEC, out=folder).result


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, fedquilt.Result]:
    """A run that ends with several models."""
    folder = tmp_path_factory.mktemp("runs") / "groups"
    wrap = [{"name": "fl_hc", "rounds": 1, "clusters": 3}]
    return folder, fedquilt.run(changed(wrap=wrap, method={"fraction": 1.0}), out=folder).result  # type: ignore[arg-type]


# Evaluate


def test_it_finds_what_the_last_round_found(finished: tuple[Path, fedquilt.Result]) -> None:
    folder, result = finished
    found = fedquilt.evaluate(folder)
    last = result.history.records[-1]
    assert {key: found[key] for key in ("accuracy", "loss", "metrics")} == {
        key: last[key] for key in ("accuracy", "loss", "metrics")
    }
    assert (found["round"], found["data"], found["split"], found["examples"]) == (3, "digits", "test", 359)


def test_a_checkpoint_before_the_last(finished: tuple[Path, fedquilt.Result]) -> None:
    folder, result = finished
    found = fedquilt.evaluate(folder, checkpoint=folder / "checkpoints" / "round-00000002.safetensors")
    assert (found["round"], found["loss"]) == (2, result.history.loss[1])


def test_the_training_data(finished: tuple[Path, fedquilt.Result]) -> None:
    folder, result = finished
    digits = fedquilt.digits()
    found = fedquilt.evaluate(folder, split="train")
    x = digits.train.x if digits.prepare is None else digits.prepare(digits.train.x)
    right = result.model(x).argmax(-1) == digits.train.y
    assert found["examples"] == len(digits.train)
    assert found["accuracy"] == int(right.sum()) / len(right)


def test_other_data_by_name_file_key_and_object(finished: tuple[Path, fedquilt.Result], tmp_path: Path) -> None:
    folder, result = finished
    other = fedquilt.digits(test_fraction=0.5, seed=3)
    x = other.test.x if other.prepare is None else other.prepare(other.test.x)
    right = int((result.model(x).argmax(-1) == other.test.y).sum()) / len(other.test)
    spec = tmp_path / "other.toml"
    spec.write_text('[data]\nname = "digits"\ntest_fraction = 0.5\nseed = 3\n')
    keys = ["data.test_fraction=0.5", "data.seed=3"]
    for found in (
        fedquilt.evaluate(folder, other),
        fedquilt.evaluate(folder, spec),
        fedquilt.evaluate(folder, "digits", keys),
        fedquilt.evaluate(folder, sets=keys),
    ):
        assert found["accuracy"] == right
        assert found["examples"] == len(other.test)


def write_rows(file: Path, rows: range, species: tuple[str, ...] = ("cat", "dog", "eel")) -> None:
    lines = [f"{k % 7},{k % 5 - 10 * (k % len(species))},{species[k % len(species)]},{k % 4}\n" for k in rows]
    file.write_text("age,weight,pet,owner\n" + "".join(lines))


def test_rows_of_a_file_are_read_as_the_runs_own_table(tmp_path: Path) -> None:
    """Labels have the numbers, and features the scale, of the table that the model was trained on."""
    write_rows(tmp_path / "pets.csv", range(120))
    write_rows(tmp_path / "test.csv", range(200, 230))
    write_rows(tmp_path / "dogs.csv", range(40), species=("dog",))
    table = {"name": "table", "path": str(tmp_path / "pets.csv"), "label": "pet", "client": "owner", "scale": True}
    spec = changed(partition={"name": "natural"}, run={"metrics": ["accuracy"]}, method={"lr": 0.5, "fraction": 1.0})
    del spec["partition"]["clients"], spec["partition"]["alpha"]
    spec |= {"data": table, "model": {"name": "softmax_regression"}}
    fedquilt.run(spec, out=tmp_path / "run")
    tested = fedquilt.run(spec | {"data": table | {"test": str(tmp_path / "test.csv")}}, out=tmp_path / "tested").result
    found = fedquilt.evaluate(tmp_path / "tested", tmp_path / "test.csv")
    assert (found["data"], found["examples"], found["split"]) == ("test", 30, "test")
    assert {key: found[key] for key in ("accuracy", "loss")} == {
        key: tested.history.records[-1][key] for key in ("accuracy", "loss")
    }
    assert fedquilt.evaluate(tmp_path / "run", str(tmp_path / "dogs.csv"))["examples"] == 40  # dog is class 1 of 3
    with pytest.raises(SpecError, match=r"split: all rows of .*dogs\.csv are used for the test; remove --split"):
        fedquilt.evaluate(tmp_path / "run", tmp_path / "dogs.csv", split="train")
    with pytest.raises(SpecError, match=r"gone\.csv: no such file"):
        fedquilt.evaluate(tmp_path / "run", tmp_path / "gone.csv")


def test_rows_of_a_file_for_a_run_on_other_data(finished: tuple[Path, fedquilt.Result], tmp_path: Path) -> None:
    data = fedquilt.digits()
    x = (data.test.x if data.prepare is None else data.prepare(data.test.x)).flatten(1).tolist()
    lines = [",".join([*map(repr, row), str(y)]) for row, y in zip(x, data.test.y.tolist(), strict=True)]
    header = ",".join([*(f"p{k}" for k in range(64)), "digit"])
    (tmp_path / "digits.csv").write_text("\n".join([header, *lines]) + "\n")
    found = fedquilt.evaluate(finished[0], tmp_path / "digits.csv", ["data.label=digit"])
    assert found["accuracy"] == finished[1].history.accuracy[-1]
    with pytest.raises(SpecError, match=r"which column of .*digits\.csv is the label\? Set it with --set data\.label="):
        fedquilt.evaluate(finished[0], tmp_path / "digits.csv")


def test_each_group_is_measured(grouped: tuple[Path, fedquilt.Result]) -> None:
    folder, result = grouped
    found, last = fedquilt.evaluate(folder), result.history.records[-1]
    assert len(result.models) == len(found["groups"]) > 1
    assert found["groups"] == last["groups"]
    assert found["accuracy"] == last["accuracy"]
    clients = [group["clients"] for group in found["groups"]]
    mean = sum(group["metrics"]["top5"] * count for group, count in zip(found["groups"], clients, strict=True)) / 20
    assert found["metrics"]["top5"] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": "digitz"}, "data: 'digitz' is neither a data set .*digits.* nor a spec file"),
        ({"data": "gone.toml"}, r"gone\.toml: no such file"),
        ({"sets": ["method.lr=1"]}, r"--set method\.lr=1: only keys of \[data\] can be changed here"),
        ({"sets": ["data.test_fraction=2"]}, r"\[data\] test_fraction: must be less than 1"),
        ({"data": "mnist_5k"}, r"the model does not fit the data set mnist_5k \(an example is \(1, 28, 28\)"),
        (
            {"checkpoint": "gone.safetensors"},
            r"no such checkpoint; the run has: round-00000003\.safetensors, round-00000002",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    finished: tuple[Path, fedquilt.Result], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(FedquiltError, match=message):
        fedquilt.evaluate(finished[0], **arguments)


def test_numbers_for_a_classifier_are_refused(finished: tuple[Path, fedquilt.Result]) -> None:
    x = np.zeros((4, 64), dtype=np.float32)
    numbers = fedquilt.arrays(x, np.ones(4), x, np.ones(4), classes=0, name="numbers")
    with pytest.raises(SpecError, match="numbers and digits do not both have classes"):
        fedquilt.evaluate(finished[0], numbers)


def test_a_folder_without_a_model_is_refused(tmp_path: Path, finished: tuple[Path, fedquilt.Result]) -> None:
    with pytest.raises(RunError, match="holds no run"):
        fedquilt.evaluate(tmp_path)
    begun = tmp_path / "begun"
    shutil.copytree(finished[0], begun)
    shutil.rmtree(begun / "checkpoints")
    asked = (fedquilt.evaluate, lambda run: fedquilt.export(run, tmp_path / "model.safetensors"))
    for ask in asked:
        with pytest.raises(
            RunError, match=r"has records, but no checkpoint: restore an intact one, or .* --from-start"
        ):
            ask(begun)
    (begun / "metrics.jsonl").unlink()
    for ask in asked:
        with pytest.raises(RunError, match="has no checkpoint yet; run it for a round or more"):
            ask(begun)


def test_another_spec_is_not_taken_for_the_runs(tmp_path: Path, finished: tuple[Path, fedquilt.Result]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    text = (folder / "spec.toml").read_text()
    (folder / "spec.toml").write_text(sealed_text(text.replace("hidden = 16", "hidden = 17").partition("# check")[0]))
    with pytest.raises(RunError, match="holds a model with other layers or shapes than its spec describes now"):
        fedquilt.evaluate(folder)


# Export


def test_plain_torch_loads_it(finished: tuple[Path, fedquilt.Result], tmp_path: Path) -> None:
    folder, result = finished
    file = fedquilt.export(folder, tmp_path / "model.safetensors")
    model = mnist_2nn(inputs=64, hidden=16)
    model.load_state_dict(load_file(file))
    x = torch.rand(5, 64)
    assert torch.equal(model(x), result.model(x))
    with safetensors.safe_open(file, framework="pt") as opened:
        assert opened.metadata() == {
            "format": "pt",
            "fedquilt": fedquilt.__version__,
            "model": "mnist_2nn",
            "round": "3",
            "digest": result.digest,
            "spec": hashlib.sha256((folder / "spec.toml").read_bytes()).hexdigest(),
        }


class Odd(nn.Module):
    """Tied weights, statistics, a frozen part, a buffer that is not saved, and one of half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.twin = nn.Linear(8, 8, bias=False)
        self.twin.weight = self.body.weight
        self.still = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 3)
        self.register_buffer("mask", torch.ones(8), persistent=False)
        self.register_buffer("scale", torch.full((1,), 0.5, dtype=torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.still(self.twin(self.norm(self.body(x)))) * self.mask * self.scale)
        return outputs


def test_every_tensor_of_a_state_dict_is_there(blobs: Data, unbalanced: Partition, tmp_path: Path) -> None:
    result = fedquilt.train(
        Odd(),
        blobs,
        unbalanced,
        fedquilt.fed_avg(fraction=1.0, batch=20),
        2,
        engine=fedquilt.inline(),
        out=tmp_path / "run",
    )
    written = load_file(fedquilt.export(tmp_path / "run", tmp_path / "model.safetensors"))
    expected = result.model.state_dict()
    assert written.keys() == expected.keys()
    for name, tensor in expected.items():
        assert tensor.dtype == written[name].dtype, name
        assert torch.equal(tensor, written[name]), name
    model = Odd()
    model.load_state_dict(written)
    assert model.twin.weight is model.body.weight


def test_an_exported_model_is_one_to_start_from(finished: tuple[Path, fedquilt.Result], tmp_path: Path) -> None:
    fedquilt.export(finished[0], tmp_path / "model.safetensors")
    spec = tmp_path / "spec.toml"
    spec.write_text(tomli_w.dumps(changed(run={"start": "model.safetensors", "rounds": 1, "trainable": 1})))
    ended = fedquilt.run(spec, out=tmp_path / "run").result
    assert torch.equal(ended.model.get_parameter("1.weight"), finished[1].model.get_parameter("1.weight"))
    assert not torch.equal(ended.model.get_parameter("5.weight"), finished[1].model.get_parameter("5.weight"))
    (tmp_path / "model.safetensors").rename(tmp_path / "moved.safetensors")
    assert torch.equal(
        load_file(fedquilt.export(tmp_path / "run", tmp_path / "tuned.safetensors"))["1.weight"],
        ended.model.get_parameter("1.weight"),
    )


def test_a_run_from_python_is_exported_but_not_evaluated(
    blobs: Data, unbalanced: Partition, smooth: nn.Module, tmp_path: Path
) -> None:
    fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.inline(), out=tmp_path / "run")
    assert list(load_file(fedquilt.export(tmp_path / "run", tmp_path / "m.safetensors"))) == [
        "0.bias", "0.weight", "2.bias", "2.weight",
    ]  # fmt: skip
    with pytest.raises(RunError, match="is a run from Python"):
        fedquilt.evaluate(tmp_path / "run")


def test_one_group_is_exported_at_a_time(grouped: tuple[Path, fedquilt.Result], tmp_path: Path) -> None:
    folder, result = grouped
    with pytest.raises(
        RunError, match=r"ended with 3 models, one for each group of clients: choose one with --group 1 to"
    ):
        fedquilt.export(folder, tmp_path / "model.safetensors")
    for number, model in enumerate(result.models, start=1):
        written = load_file(fedquilt.export(folder, tmp_path / f"{number}.safetensors", group=number))
        assert all(torch.equal(tensor, written[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(RunError, match="has 3 models; there is no group 4"):
        fedquilt.export(folder, tmp_path / "model.safetensors", group=4)


def test_a_file_that_exists_is_kept(finished: tuple[Path, fedquilt.Result], tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_text("mine")
    with pytest.raises(RunError, match="exists already; choose another name, or overwrite it with --force"):
        fedquilt.export(finished[0], file)
    assert file.read_text() == "mine"
    fedquilt.export(finished[0], file, overwrite=True)
    assert "1.weight" in load_file(file)
    with pytest.raises(RunError, match=r"the folder .*nowhere does not exist"):
        fedquilt.export(finished[0], tmp_path / "nowhere" / "model.safetensors")


@pytest.mark.parametrize("ending", ["pt", "pth"])
def test_a_file_for_torch_load(finished: tuple[Path, fedquilt.Result], tmp_path: Path, ending: str) -> None:
    file = fedquilt.export(finished[0], tmp_path / f"model.{ending}")
    written = torch.load(file, weights_only=True)
    module = mnist_2nn(inputs=64, hidden=16, classes=10)
    module.load_state_dict(written)
    assert all(torch.equal(value, written[name]) for name, value in finished[1].model.state_dict().items())


@pytest.mark.parametrize("name", ["model", "model.bin", "model.onnx", "model.csv"])
def test_other_endings_are_refused(finished: tuple[Path, fedquilt.Result], tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match=rf"{name}: must end in \.safetensors, or in \.pt or \.pth for torch\.load"):
        fedquilt.export(finished[0], tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_checkpoint_of_before_cannot_be_exported(finished: tuple[Path, fedquilt.Result], tmp_path: Path) -> None:
    from fedquilt.experiment import checkpoint

    state, about = checkpoint.load(finished[0] / "checkpoints" / "round-00000003.safetensors")
    del about["names"]
    checkpoint.save(tmp_path / "old.safetensors", state, about)
    with pytest.raises(RunError, match="lacks the names of its tensors"):
        fedquilt.export(finished[0], tmp_path / "model.safetensors", checkpoint=tmp_path / "old.safetensors")


# Keys of a spec


def weights(folder: Path, **tensors: torch.Tensor) -> None:
    model = mnist_2nn(inputs=64, hidden=16)
    save_file(model.state_dict() | tensors, folder / "weights.safetensors")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"metrics": ["top3"]}, r"\[run\] metrics: no metric is called 'top3'; did you mean 'top5'\?"),
        ({"metrics": "accuracy"}, r"\[run\] metrics: must be a list, got 'accuracy'"),
        ({"metrics": ["own_metrics:gone"]}, r"\[run\] metrics: cannot import 'own_metrics' \(looked in"),
        (
            {"loss": "mse"},
            r"\[run\] loss: no loss is called 'mse'; known: cross_entropy, mean_squared_error; or the import",
        ),
        ({"loss": "mean_squared_error"}, r"\[run\] loss: mean_squared_error is for numbers"),
        ({"metrics": ["error"], "stop_at": 0.5}, r"\[run\] stop_at: is an accuracy, which this run does not measure"),
        ({"start": "gone.safetensors"}, r"\[run\] start: .*gone\.safetensors: no such weights file"),
        ({"start": "spec.toml"}, r"\[run\] start: .*spec\.toml: cannot be read as safetensors"),
        ({"start": "wide.safetensors"}, r"\[run\] start: .* 1\.weight is \(20, 64\), but the model has \(16, 64\)"),
        ({"start_skip": ["5"]}, r"\[run\] start_skip: lists parts that the file `start` does not fill"),
        ({"start": "wide.safetensors", "start_skip": ["7"]}, r"\[run\] start_skip: the model has no part called '7'"),
        ({"trainable": 4}, r"\[run\] trainable: the last 4 layers are requested, but the model has 3"),
        ({"trainable": ["head"]}, r"\[run\] trainable: the model has no part called 'head'; known: 1, 3, 5"),
        ({"trainable": 0}, r"\[run\] trainable: "),
        ({"trainable": []}, r"\[run\] trainable: "),
    ],
)
def test_wrong_keys_are_refused(tmp_path: Path, run: dict[str, Any], message: str) -> None:
    weights(tmp_path)
    wide = mnist_2nn(inputs=64, hidden=20)
    save_file(wide.state_dict(), tmp_path / "wide.safetensors")
    spec = tmp_path / "spec.toml"
    spec.write_text(tomli_w.dumps(changed(run=run)))
    with pytest.raises(SpecError, match=f"spec.toml: .*{message}"):
        fedquilt.run(spec, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_skipped_part_is_drawn_as_without_a_file(tmp_path: Path) -> None:
    weights(tmp_path, **{"5.weight": torch.zeros(1000, 16), "5.bias": torch.zeros(1000)})
    run = {"start": str(tmp_path / "weights.safetensors"), "start_skip": ["5"], "trainable": ["1"], "rounds": 1}
    warm = fedquilt.run(changed(run=run), out=tmp_path / "warm").result
    plain = fedquilt.run(changed(run={"trainable": ["1"], "rounds": 1}), out=tmp_path / "plain").result
    file = load_file(tmp_path / "weights.safetensors")
    assert torch.equal(warm.model.get_parameter("5.weight"), plain.model.get_parameter("5.weight"))
    assert torch.equal(warm.model.get_parameter("3.weight"), file["3.weight"])
    assert not torch.equal(warm.model.get_parameter("3.weight"), plain.model.get_parameter("3.weight"))


def test_own_functions_are_found_beside_the_spec_and_after_a_resume(tmp_path: Path) -> None:
    (tmp_path / "own_objective.py").write_text(
        "from torch.nn.functional import cross_entropy\n"
        "def smoothed(outputs, targets):\n"
        "    return cross_entropy(outputs, targets, reduction='none', label_smoothing=0.1)\n"
        "def margin(outputs, targets):\n"
        "    return outputs.max(dim=-1).values\n"
    )
    spec = tmp_path / "spec.toml"
    run = {"loss": "own_objective:smoothed", "metrics": ["accuracy", "own_objective:margin"], "rounds": 2}
    spec.write_text(tomli_w.dumps(changed(run=run)))
    first = fedquilt.run(spec, out=tmp_path / "run").result
    assert first.digest != fedquilt.run(changed(run={"rounds": 2}), out=tmp_path / "plain").result.digest
    more = fedquilt.resume(tmp_path / "run", rounds=4).result
    straight = fedquilt.run(spec, ["run.rounds=4"], out=tmp_path / "straight").result
    assert more.digest == straight.digest
    assert more.history.curve("margin") == straight.history.curve("margin")
    assert fedquilt.evaluate(tmp_path / "run")["metrics"] == more.history.records[-1]["metrics"]


def test_runs_without_accuracy_are_compared_by_loss(tmp_path: Path) -> None:
    alike = {"name": "iid", "clients": 20}
    for lr in (0.01, 0.5):
        spec = changed(run={"metrics": ["perplexity"]}, method={"lr": lr})
        spec["partition"] = alike
        fedquilt.run(spec, out=tmp_path / f"lr{lr}")
    about = fedquilt.summary(tmp_path / "lr0.5")
    assert about["accuracy"] is None
    assert about["best"].keys() == {"round", "loss"}
    assert about["state"] == "finished"
    done = fedquilt.report([tmp_path / "lr0.01", tmp_path / "lr0.5"], tmp_path / "report")
    (table,) = done.parts[0].tables
    columns = dict(zip(table.header, zip(*table.rows, strict=True), strict=True))
    assert all(text.startswith("perplexity ") for text in columns["other metrics"])
    slowly, quickly = columns["last loss"]
    assert float(slowly) > float(quickly)
    grid = tmp_path / "grid.toml"
    spec = changed(run={"metrics": []}, grid={"method.lr": [0.01, 0.5]}, metric={"of": "loss"}) | {"partition": alike}
    grid.write_text(tomli_w.dumps(spec))
    swept = fedquilt.sweep(grid, out=tmp_path / "grid")
    slow, fast = swept.cells
    assert slow.value == swept.trials[0].loss == fedquilt.summary(tmp_path / "grid" / "lr=0.01")["loss"]
    assert fast.value == swept.trials[1].loss
    assert slow.value is not None
    assert fast.value is not None
    assert slow.value > fast.value
