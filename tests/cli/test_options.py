"""Options that several commands have: changing a spec, taking keys out of it, and refusing code that it names."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.progress import Progress
from rich.table import Table
from typer.testing import CliRunner

import fedquilt
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.cli.app import app
from fedquilt.cli.console import console
from fedquilt.experiment.page.source import Reader
from fedquilt.experiment.report import gather
from fedquilt.experiment.results.cells import cells_of
from fedquilt.experiment.results.figures import figures_of

SPEC = """
[run]
rounds = 1
[data]
name = "digits"
[partition]
name = "dirichlet"
clients = 10
alpha = 0.5
[model]
name = "softmax_regression"
inputs = 64
[method]
name = "fed_avg_m"
server_momentum = 0.5
[engine]
name = "inline"
"""

OWN = """
from pathlib import Path
Path("was_imported").touch()
def model():
    import torch
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
def loss(outputs, targets):
    return (outputs - 0).square().mean(dim=-1)
def error(outputs, targets):
    return (outputs.argmax(dim=-1) != targets).float()
def wrong(outputs, targets):
    return error(outputs, targets)
"""


@pytest.fixture(autouse=True)
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    Path("own_code.py").write_text(OWN)
    path = Path("spec.toml")
    path.write_text(SPEC)
    yield path
    sys.modules.pop("own_code", None)


def called(*words: str) -> str:
    """Call a command; return its output, or raise what the command line makes a message of."""
    ended = CliRunner().invoke(app, words)
    if isinstance(ended.exception, FedquiltError):
        raise ended.exception
    assert ended.exit_code == 0, ended.output
    return ended.output


def test_unset_takes_keys_and_tables_out(spec: Path) -> None:
    unsets = ["method.server_momentum", "engine"]
    resolved = fedquilt.load_spec(spec, unsets=unsets).resolved()
    assert (resolved["method"]["server_momentum"], resolved["engine"]["name"]) == (0.9, "auto")
    called("run", "spec.toml", "--out", "run", "--unset", "method.server_momentum", "--set", "method.lr=0.5")
    method = fedquilt.summary("run")["spec"]["method"]
    assert (method["lr"], method["server_momentum"]) == (0.5, 0.9)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("method.lr", "--unset method.lr: the spec has no such key; known: name, server_momentum"),
        ("nothing.lr", r"--unset nothing.lr: \[nothing\] is not a table"),
        ("wrap.1.mu", r"--unset wrap.1.mu: write wrap.NUMBER.key; the spec has 0 \[\[wrap\]\] tables, from 1"),
        ("metod", "--unset metod: the spec has no such key; did you mean 'method'"),
    ],
)
def test_unset_of_what_is_not_there_is_refused(spec: Path, key: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        fedquilt.load_spec(spec, unsets=[key])


def test_naming_another_function_drops_the_keys_of_the_one_before_and_says_so(spec: Path) -> None:
    with pytest.warns(UserWarning, match=r"^partition.alpha is left out: dirichlet has this key, and iid does not$"):
        resolved = fedquilt.load_spec(spec, ["partition.name=iid"]).resolved()
    assert resolved["partition"] == {"name": "iid", "clients": 10, "seed": 0, "own_test": False}


def test_keys_that_are_set_are_never_dropped(spec: Path) -> None:
    with pytest.warns(UserWarning, match="partition.alpha"), pytest.raises(SpecError, match="alpha: unknown key"):
        fedquilt.load_spec(spec, ["partition.alpha=0.1", "partition.name=iid"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shards = fedquilt.load_spec(spec, ["partition.shards=3", "partition.name=shards"], ["partition.alpha"])
    assert shards.resolved()["partition"]["shards"] == 3


def test_keys_that_no_function_takes_are_still_errors(spec: Path) -> None:
    spec.write_text(SPEC.replace("alpha", "alhpa"))
    with pytest.raises(SpecError, match="alhpa: unknown key"):
        fedquilt.load_spec(spec, ["partition.name=iid"])


NAMED = {
    "a model": 'model.name="own_code:model"',
    "a loss": 'run.loss="own_code:loss"',
    "a metric": 'run.metrics=["own_code:error"]',
}


@pytest.mark.parametrize("change", NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_no_import_refuses_a_spec_that_names_code(spec: Path, change: str, command: str) -> None:
    unset = ["--unset", "model.inputs"] if "model" in change else []
    if command == "sweep":
        spec.write_text(spec.read_text() + '[grid]\n"method.lr" = [0.1]\n')
    with pytest.raises(SpecError, match="would import code, which --no-import refuses"):
        called(command, "spec.toml", "--out", "there", "--no-import", "--set", change, *unset)
    assert not Path("was_imported").exists()


def test_no_import_refuses_a_run_folder_that_names_code(spec: Path) -> None:
    fedquilt.run("spec.toml", [NAMED["a model"]], out="own", unsets=["model.inputs"])
    Path("was_imported").unlink()
    del sys.modules["own_code"]
    for words in (["resume", "own", "--rounds", "2"], ["evaluate", "own"], ["show", "own", "--diagnose"]):
        with pytest.raises(SpecError, match=r"\[model\] name: 'own_code:model' would import code"):
            called(*words, "--no-import")
    assert not Path("was_imported").exists()
    called("show", "own", "--no-import")  # reads the folder's files, and no code
    called("evaluate", "own")
    assert Path("was_imported").exists()


OWN_RATES = """
[run]
rounds = 1
metrics = ["accuracy", "own_code:wrong"]
validation = 0.2
[data]
name = "digits"
[partition]
name = "iid"
clients = 4
[model]
name = "own_code:model"
[method]
name = "fed_avg"
[engine]
name = "inline"
[case.rate.small]
[case.rate.large]
method.lr = 0.5
[tune]
by = "validation"
"method.batch" = [10, 20]
[[figure]]
name = "interpolation"
first = { rate = "small" }
second = { rate = "large" }
points = 3
"""


def test_what_shows_an_experiment_imports_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may be somebody else's: a sweep, which imports the code, computes the figures that need it."""
    Path("rates.toml").write_text(OWN_RATES)
    experiment = fedquilt.experiment("rates.toml")
    for trial in experiment.trials:
        fedquilt.run(trial.spec, out=Path("runs", trial.name))
    Path("runs", "experiment.toml").write_text(experiment.to_toml())
    cells = [cell.value for cell in cells_of(experiment, "runs")]
    sys.modules.pop("own_code", None)
    Path("was_imported").unlink()
    listed = called("show", "runs")
    (part,), _ = gather([Path("runs")], Reader())
    assert part.result is not None
    assert [cell.value for row in part.result.cells for cell in row if cell] == cells != [None] * 2
    needs = "needs the code 'own_code:model', which is not imported to show results; `fedquilt sweep` imports it"
    assert any(needs in fact for fact in part.facts)
    assert "4 runs: 4 finished" in listed
    assert not Path("was_imported").exists()
    figures_of(experiment, "runs")  # as a sweep does at its end
    sys.modules.pop("own_code", None)
    Path("was_imported").unlink(missing_ok=True)
    (part,), _ = gather([Path("runs")], Reader())
    assert not any("needs the code" in fact for fact in part.facts)
    assert not Path("was_imported").exists()


def test_no_import_refuses_a_population_that_names_code(spec: Path) -> None:
    with pytest.raises(SpecError, match="would import code"):
        called("partition", "spec.toml", "--no-import", "--set", "data.name=own_code:model")
    fedquilt.run("spec.toml", out="run")
    with pytest.raises(SpecError, match="would import code"):
        called("evaluate", "run", "--no-import", "--data", "own_code:model")
    assert not Path("was_imported").exists()


def test_no_import_runs_what_names_no_code_and_ends_with_the_command(spec: Path) -> None:
    called("run", "spec.toml", "--out", "run", "--no-import")
    called("run", "spec.toml", "--out", "own", "--set", NAMED["a model"], "--unset", "model.inputs")


def test_the_environment_can_refuse_imports(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_NO_IMPORT", "1")
    with pytest.raises(SpecError, match="would import code"):
        called("run", "spec.toml", "--set", NAMED["a metric"])


def test_python_can_refuse_imports(spec: Path) -> None:
    with fedquilt.no_import(), pytest.raises(SpecError, match="would import code"):
        fedquilt.load_spec(spec, [NAMED["a loss"]])
    assert not Path("was_imported").exists()


def test_nothing_from_a_spec_reaches_a_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;title\x1b\\ \x1b[2J\u202eabc\x9b31m"
    out = console()
    table = Table("name")
    table.add_row(hostile)
    out.print(hostile, markup=False)
    out.print(table)
    with Progress(console=out, auto_refresh=False) as progress:
        progress.add_task(hostile)
    written = capsys.readouterr().out
    assert written.count("title") == 3
    assert not {"\x1b", "\x9b", "\u202e"} & set(written)


def test_a_name_with_escapes_is_shown_with_them_visible(spec: Path) -> None:
    spec.write_text(SPEC.replace('"fed_avg_m"', r'"\u001b[31mfed"'))
    with pytest.raises(SpecError) as refused:
        fedquilt.run(spec)
    assert r"no method is called '\x1b[31mfed'" in str(refused.value)
