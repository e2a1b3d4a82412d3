"""The command line: what each command prints and leaves behind, and the exit codes that scripts rely on."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from command_line import SPEC, Command
from rich.console import Console

import fedquilt
from fedquilt.analysis.curves import History
from fedquilt.base import registry
from fedquilt.base.errors import WorkerError
from fedquilt.base.registry import KINDS
from fedquilt.cli import console as terminal
from fedquilt.experiment.progress import Lines, Live, Pace, watcher
from fedquilt.experiment.sealed import sealed_json, sealed_text


def digest(folder: str) -> str:
    return str(fedquilt.summary(folder)["digest"])


# run


def test_run_prints_plain_lines_and_where_things_are(command: Command) -> None:
    answer = command("run", "spec.toml")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[:2] == ["spec: loading digits", "spec: begins, 2 rounds in all"]
    assert lines[2].startswith("round 1/2  accuracy ")
    assert lines[3].startswith("round 2/2  accuracy ")
    assert lines[4].startswith("Finished 2 rounds: accuracy ")
    assert lines[5:] == [
        f"Model SHA-256: {digest('runs/spec')}",
        "Run folder: runs/spec",
        "Page: fedquilt report runs/spec",
    ]
    assert "\x1b" not in answer.out


def test_run_takes_a_free_folder_unless_one_is_given(command: Command) -> None:
    for folder in ("runs/spec", "runs/spec-2", "runs/spec-3"):
        assert f"Run folder: {folder}\n" in command("run", "spec.toml", "--set", "run.rounds=1").out
    assert "Run folder: some/where\n" in command("run", "spec.toml", "--out", "some/where").out


def test_run_into_a_folder_that_holds_a_run(command: Command) -> None:
    assert command("run", "spec.toml", "--out", "here").code == 0
    before = digest("here")
    answer = command("run", "spec.toml", "--set", "run.seed=5", "--out", "here")
    assert answer.code == 2
    assert answer.err == (
        "error: here: already holds a run; continue it with `fedquilt resume here`, or choose another folder\n"
    )
    assert digest("here") == before


def test_changes_reach_the_run(command: Command) -> None:
    command("run", "spec.toml", "--set", "method.name=fed_sgd", "--set", "run.rounds=1", "--out", "a")
    about = fedquilt.summary("a")
    assert (about["rounds"], about["spec"]["method"]["name"]) == (1, "fed_sgd")


def test_folder_that_looks_like_markup(command: Command) -> None:
    answer = command("run", "spec.toml", "--out", "[bold]/x[/y] z")
    assert answer.code == 0
    assert "Run folder: [bold]/x[/y] z\n" in answer.out
    assert "[bold]/x[/y] z" in command("show", "[bold]/x[/y] z").out


def test_out_that_is_a_file_or_cannot_be_made(command: Command) -> None:
    answer = command("run", "spec.toml", "--out", "spec.toml")
    assert answer.code == 2
    assert "is a file" in answer.err
    answer = command("run", "spec.toml", "--out", "spec.toml/below")
    assert (answer.code, answer.err) == (2, "error: spec.toml/below: cannot be used as a run folder: Not a directory\n")


# resume


def test_resume_of_a_finished_run_says_so(command: Command) -> None:
    command("run", "spec.toml")
    before = digest("runs/spec")
    answer = command("resume", "runs/spec")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "The run was finished already: nothing to do; --rounds makes it longer."
    assert lines[1].startswith("Finished 2 rounds: accuracy ")
    assert lines[2] == f"Model SHA-256: {before}"


def test_resume_of_a_run_that_reached_its_goal(command: Command) -> None:
    command("run", "spec.toml", "--set", "run.rounds=50", "--set", "run.stop_at=0.1")
    answer = command("resume", "runs/spec")
    assert answer.code == 0
    assert answer.out.startswith("The run was finished already: nothing to do.\n")


def test_longer_run_equals_one_of_that_length(command: Command) -> None:
    command("run", "spec.toml", "--out", "two")
    command("run", "spec.toml", "--set", "run.rounds=4", "--out", "four")
    answer = command("resume", "two", "--rounds", "4")
    assert answer.code == 0
    assert answer.out.startswith(
        "two: loading digits\ntwo: engine: inline, eager (as before)\ntwo: continues after round 2, 4 rounds in all\n"
    )
    assert digest("two") == digest("four")
    assert _curve("two") == _curve("four")
    assert fedquilt.summary("two")["rounds"] == 4


def _curve(folder: str) -> list[dict[str, object]]:
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if key not in ("seconds", "check")} for line in lines
    ]


def test_run_cannot_be_made_shorter_than_it_is(command: Command) -> None:
    command("run", "spec.toml")
    answer = command("resume", "runs/spec", "--rounds", "1")
    assert (answer.code, answer.err) == (
        2,
        "error: runs/spec: has 2 rounds already; set --rounds to a larger number to continue it\n",
    )
    answer = command("resume", "runs/spec", "--rounds", "0")
    assert answer.code == 2
    assert answer.err == "error: runs/spec/spec.toml: [run] rounds: must be at least 1, got 0\n"
    assert fedquilt.summary("runs/spec")["state"] == "finished"


@pytest.mark.parametrize("verb", ["resume", "show"])
@pytest.mark.parametrize("folder", ["empty", "spec.toml"])
def test_folder_without_a_run(command: Command, verb: str, folder: str) -> None:
    Path("empty").mkdir()
    answer = command(verb, folder)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"error: {folder}: holds no run (there is no spec.toml in it)\n"


def test_run_from_python_cannot_be_resumed_here(command: Command, blobs, unbalanced, smooth) -> None:
    fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.inline(), out="own")
    answer = command("resume", "own")
    assert answer.code == 2
    assert answer.err == ("error: own: is a run from Python; call fedquilt.train(…, out=…) again to continue it\n")


# show


def test_show(command: Command) -> None:
    command("run", "spec.toml")
    answer = command("show", "runs/spec")
    assert (answer.code, answer.err) == (0, "")
    shown = dict(line.strip().split(maxsplit=1) for line in answer.out.splitlines() if not line.startswith("left"))
    assert shown["run"] == "runs/spec"
    assert shown["state"] == "finished"
    assert shown["rounds"] == "2 of 2 (saved up to 2)"
    assert shown["digest"] == digest("runs/spec")
    assert "left out  0 clients, 0 rounds without an update" in answer.out


def test_show_json_is_json_that_every_reader_takes(command: Command) -> None:
    command("run", "spec.toml", "--set", "method.batch=inf")
    answer = command("show", "runs/spec", "--json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    about = json.loads(answer.out, parse_constant=refuse)
    assert about.keys() >= {"state", "round", "rounds", "accuracy", "best", "digest", "left_out", "spec"}
    assert about["spec"]["method"]["batch"] == "inf"
    assert about["digest"] == digest("runs/spec")


def test_show_of_an_interrupted_run_says_how_to_go_on(command: Command) -> None:
    command("run", "spec.toml")
    spec = Path("runs/spec/spec.toml")
    spec.write_text(sealed_text(spec.read_text().replace("rounds = 2", "rounds = 9").partition("# check")[0]))
    answer = command("show", "runs/spec")
    assert "interrupted" in answer.out
    assert "fedquilt resume runs/spec" in answer.out


def test_the_command_to_continue_with_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.out, "_width", 80)
    folder = f"runs/{'long-name-of-a-folder-' * 5}"
    command("run", "spec.toml", "--out", folder)
    spec = Path(folder, "spec.toml")
    spec.write_text(sealed_text(spec.read_text().replace("rounds = 2", "rounds = 9").partition("# check")[0]))
    assert f"continue with: fedquilt resume {folder}\n" in command("show", folder).out


def test_compiling_is_said(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(fedquilt.inline()), "open", interrupt)
    answer = command("run", "spec.toml", "--set", "engine.compute=compiled")
    assert "spec: compiling the local steps, which can take a minute the first time\n" in answer.out
    by_layers = (
        SPEC.replace("softmax_regression", "mnist_cnn").replace("inputs = 64\n", "").replace("digits", "mnist_5k")
    )
    Path("layers.toml").write_text(by_layers)
    answer = command("run", "layers.toml", "--set", "engine.compute=compiled")
    assert (answer.code, answer.err) == (130, "")
    assert "compiling the local steps" not in answer.out


def test_show_names_reasons_as_they_are(command: Command) -> None:
    command("run", "spec.toml")
    path = Path("runs/spec/metrics.jsonl")
    first, second = path.read_text().splitlines()
    faulty = json.loads(second) | {"dropped": [{"client": 1, "reason": "no [/such] thing"}], "applied": False}
    del faulty["check"]
    path.write_text(f"{first}\n{sealed_json(faulty)}")
    out = command("show", "runs/spec").out
    assert "1 client, 1 round without an update" in out
    assert "no [/such] thing" in out


# evaluate, export


def test_evaluate_prints_figures_or_json(command: Command) -> None:
    command("run", "spec.toml", "--set", 'run.metrics=["accuracy", "top5", "perplexity"]')
    answer = command("evaluate", "runs/spec")
    assert (answer.code, answer.err) == (0, "")
    shown = dict(line.split(maxsplit=1) for line in answer.out.splitlines())
    last = fedquilt.summary("runs/spec")
    assert shown["data"].strip() == "digits, test: 359 examples, after round 2"
    assert shown["accuracy"].strip() == f"{100 * last['accuracy']:.2f}%"
    assert shown["perplexity"].strip() == f"{last['metrics']['perplexity']:.4f}"
    found = json.loads(command("evaluate", "runs/spec", "--json", "--split", "train").out)
    assert (found["split"], found["examples"], found["round"]) == ("train", 1438, 2)
    assert found["metrics"].keys() == {"top5", "perplexity"}
    wrong = command("evaluate", "runs/spec", "--data", "digit")
    assert wrong.code == 2
    assert wrong.err.startswith("error: data: 'digit' is neither a data set (")
    assert command("evaluate", "runs/none").err == "error: runs/none: there is no such folder; known: spec\n"
    assert command("evaluate", "other/none").err.endswith("nor a run beside it; `fedquilt run SPEC` makes one\n")


def test_evaluate_shows_each_group(command: Command) -> None:
    with Path("spec.toml").open("a") as file:
        file.write('[[wrap]]\nname = "fl_hc"\nrounds = 1\n')
    command("run", "spec.toml", "--set", "method.fraction=1.0")
    lines = command("evaluate", "runs/spec").out.splitlines()
    assert re.match(r"group 1 +\d+ clients: accuracy .*%, loss ", lines[-2])
    assert lines[-1].startswith("group 2")
    assert "choose one with --group 1 to --group 2" in command("export", "runs/spec", "m.safetensors").err
    assert command("export", "runs/spec", "m.safetensors", "--group", "2").out == "Wrote m.safetensors\n"


def test_export_writes_a_file_once(command: Command) -> None:
    command("run", "spec.toml")
    answer = command("export", "runs/spec", "m.safetensors")
    assert (answer.code, answer.out, answer.err) == (0, "Wrote m.safetensors\n", "")
    again = command("export", "runs/spec", "m.safetensors")
    assert again.code == 2
    assert again.err == "error: m.safetensors: exists already; choose another name, or overwrite it with --force\n"
    assert command("export", "runs/spec", "m.safetensors", "--force").code == 0


def test_a_run_without_accuracy_shows_its_loss(command: Command) -> None:
    lines = command("run", "spec.toml", "--set", 'run.metrics=["perplexity"]').out.splitlines()
    assert re.match(r"round 2/2  loss \d\.\d{4}  perplexity \d+\.\d{4}  ", lines[3])
    assert re.match(r"Finished 2 rounds: loss .*, lowest .* in round \d, perplexity ", lines[4])
    shown = dict(line.split(maxsplit=1) for line in command("show", "runs/spec").out.splitlines())
    assert shown["best"].startswith("loss ")
    assert shown.keys() >= {"loss", "perplexity"}
    assert "accuracy" not in shown
    table = command("report", "runs/spec").out
    assert "last loss" in table
    assert "perplexity" in table


# list, new, help


@pytest.mark.parametrize("kind", list(KINDS))
def test_list(command: Command, kind: str) -> None:
    answer = command("list", kind)
    assert answer.code == 0
    words = " ".join(answer.out.split())
    chosen: registry.Registry = getattr(registry, kind)
    for name in chosen:
        assert f"{name} {chosen.summary(name).split()[0]}" in words


def test_list_of_all_names_everything(command: Command) -> None:
    listed = dict(line.split("\t") for line in command("list").out.splitlines())
    assert list(listed) == list(KINDS)
    for kind, names in listed.items():
        assert names.split(", ") == list(getattr(registry, kind))


def test_list_of_something_else(command: Command) -> None:
    answer = command("list", "optimisers")
    assert answer.code == 2
    assert "known: " in answer.err
    assert "methods" in answer.err
    assert "did you mean 'methods'?" in command("list", "method").err


def test_new_writes_a_spec_that_runs(command: Command) -> None:
    answer = command("new", "first.toml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "Wrote first.toml. Run it with: fedquilt run first.toml\n"
    assert command("run", "first.toml", "--set", "run.rounds=1", "--set", "engine.workers=1").code == 0


def test_new_overwrites_nothing(command: Command) -> None:
    answer = command("new", "spec.toml")
    assert answer.code == 2
    assert answer.err == "error: spec.toml: exists already; choose another name, or overwrite it with --force\n"
    assert Path("spec.toml").read_text() == SPEC
    assert command("new", "spec.toml", "--force").code == 0
    assert Path("spec.toml").read_text() != SPEC


def test_new_in_a_folder_that_is_not_there(command: Command) -> None:
    answer = command("new", "no/first.toml")
    assert (answer.code, answer.err) == (2, "error: no/first.toml: cannot be written: No such file or directory\n")


def test_help_has_examples(command: Command) -> None:
    for verb in ("run", "resume", "show", "list", "new", "sweep", "check", "report"):
        answer = command(verb, "--help")
        assert answer.code == 0
        assert f"Example: fedquilt {verb}" in answer.out
    assert "fedquilt new first.toml" in command("--help").out


@pytest.mark.parametrize(
    "words", [["run"], ["run", "spec.toml", "--sett", "x"], ["walk"], ["resume", "x", "--rounds", "a"]]
)
def test_wrong_usage(command: Command, words: list[str]) -> None:
    answer = command(*words)
    assert answer.code == 2
    assert "Usage:" in answer.err


# sweep and report


def test_sweep_and_check(command: Command) -> None:
    Path("grid.toml").write_text(
        SPEC.replace('[engine]\nname = "inline"\n', "")
        + '[grid]\n"partition.alpha" = [0.1, 100.0]\n'
        + '[tune]\nby = "test"\n"method.lr" = [0.001, 0.5]\n[repeat]\n"run.seed" = [1, 2]\n'
        + '[[published]]\ncell = { alpha = 0.1 }\nvalue = 0.87\nsource = "Table 1"\n'
    )
    asked = command("check", "grid.toml", "--set", "method.fraction=1.0", "--quick")
    assert (asked.code, asked.err) == (0, "")
    words = " ".join(asked.out.split())
    assert "cells 2: alpha (2)" in words
    assert "trials 8 to run rounds 16" in words
    answer = command("sweep", "grid.toml", "--set", "method.fraction=1.0", "--jobs", "2")
    assert answer.code == 0, answer.err
    assert "grid: [1/8] alpha=0.1,lr=0.001,seed=1: starts\n" in answer.out
    assert re.search(
        r"grid: \[8/8\] alpha=100,lr=0.5,seed=2: finished after 2 rounds in \d:\d\d, best [\d.]+%\n", answer.out
    )
    assert "published 87" in answer.out
    assert re.search(r"│ 100 +│ +[\d.]+ ± [\d.]+ │", answer.out)
    assert "lr=0.5" in answer.out
    assert "Mean ± sample standard deviation over 2 repeats (run.seed).\n" in answer.out
    assert answer.err.startswith("warning: The best value is at the edge of those tried: 0.1 (method.lr=0.5)")
    assert answer.out.endswith("Trials: runs/grid\nPage: fedquilt report runs/grid\n")
    again = command("sweep", "grid.toml", "--set", "method.fraction=1.0")
    assert (again.code, "starts" in again.out) == (0, False)
    assert "8 trials of 8 finished before" in again.out
    left = command("check", "grid.toml", "--set", "method.fraction=1.0", "--quick")
    assert "0 to run, 8 finished in runs/grid" in " ".join(left.out.split())


GRID = '[grid]\n"method.lr" = [0.1, 0.2]\n'


def test_check_names_trials_whose_method_cannot_be_made(command: Command) -> None:
    grid = '[[wrap]]\nname = "fed_vc"\n[grid]\n"wrap.1.size" = [10, 11, 12]\n[repeat]\n"run.seed" = [1, 2]\n'
    Path("grid.toml").write_text(SPEC + grid)
    answer = command("check", "grid.toml", "--set", "method.batch=10", "--quick")
    assert answer.code == 1
    assert "trials 6 to run" in " ".join(answer.out.split())
    first, second = answer.err.splitlines()
    why = "cannot be run: grid.toml: [wrap 1] fed_vc: size: must be a multiple of the method's batch size, 10, such as"
    assert first == f"warning: size=11,seed=1 and 1 other {why} 10 or 20, got 11"
    assert second == f"warning: size=12,seed=1 and 1 other {why} 10 or 20, got 12"


def test_check_measures_short_trials(command: Command) -> None:
    Path("grid.toml").write_text(SPEC + GRID)
    answer = command("check", "grid.toml", "--set", "run.rounds=1000000", "--only", "0.2")
    assert (answer.code, answer.err) == (0, "")
    words = " ".join(answer.out.split())
    assert "trials 1 to run rounds 1,000,000" in words
    assert re.search(r"time about [\d.]+ (s|min|h|days).* on this machine, from 1 short trial", words)
    assert re.search(r"memory about [\d.]+ MB per trial, [\d.]+ MB at once; [\d.]+ GB are free", words)
    assert not Path("runs").exists()


def test_check_says_once_why_trials_would_fail(command: Command) -> None:
    Path("grid.toml").write_text(
        SPEC.replace('name = "digits"', 'name = "table"\npath = "none.csv"\nlabel = "y"') + GRID
    )
    answer = command("check", "grid.toml")
    assert answer.code == 1
    assert answer.err.count("warning:") == 1
    assert "the short trial of lr=0.1 and 1 other failed: " in answer.err


def test_a_mistyped_command_is_suggested_once(command: Command) -> None:
    answer = command("rn", "spec.toml")
    assert answer.code == 2
    assert answer.err.count("Did you mean 'run'?") == 1


def test_report(command: Command) -> None:
    command("run", "spec.toml", "--out", "a")
    command("run", "spec.toml", "--set", "method.name=fed_sgd", "--out", "b")
    answer = command("report", "a", "b", "--target", "0.05")
    assert (answer.code, answer.err) == (0, "")
    assert "rounds to 5.00%" in " ".join(answer.out.split())
    assert answer.out.endswith("Tables and figures: runs/report\nOpen in a browser: runs/report/index.html\n")
    assert Path("runs/report/index.html").exists()
    alone = command("report", "a")
    assert alone.out.endswith("Tables and figures: a/report\nOpen in a browser: a/report/index.html\n")
    wrong = command("report", "a", "--target", "97")
    assert wrong.code == 2
    assert wrong.err == "error: target: must be an accuracy above 0 and at most 1, such as 0.97; got 97\n"


# Exit codes and messages


def test_failed_run_exits_with_1(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise WorkerError("a worker died 3 times on client 7 [/b] :smile:")

    monkeypatch.setattr(fedquilt, "run", fail)
    answer = command("run", "spec.toml")
    assert (answer.code, answer.err) == (1, "error: a worker died 3 times on client 7 [/b] :smile:\n")


def test_interrupt_before_the_first_round(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fedquilt, "run", interrupt)
    answer = command("run", "spec.toml")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err == "Interrupted before training began: nothing was started, and nothing saved.\n"


@pytest.mark.parametrize("words", [["run", "spec.toml"], ["run", "spec.toml", "--out", "own"]])
def test_interrupt_while_the_data_are_read_leaves_nothing(command: Command, words: list[str]) -> None:
    Path("stop.py").write_text("def load():\n    raise KeyboardInterrupt\n")
    before = set(Path().rglob("*"))
    answer = command(*words, "--set", "data.name=stop:load")
    assert (answer.code, answer.out.count("\n")) == (130, 1)
    assert answer.out.endswith(": loading stop:load\n")
    assert answer.err.endswith("nothing was started, and nothing saved.\n")
    assert not {path for path in set(Path().rglob("*")) - before if path.is_file() and path.suffix != ".pyc"}


def test_interrupt_before_a_run_goes_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    command("run", "spec.toml", "--set", "run.rounds=1")
    monkeypatch.setattr(fedquilt, "resume", interrupt)
    answer = command("resume", "runs/spec", "--rounds", "3")
    assert (answer.code, answer.err) == (130, "Interrupted before training went on: the run is as it was.\n")


def test_one_round_and_few_bytes(command: Command) -> None:
    answer = command("run", "spec.toml", "--set", "run.rounds=1")
    assert "begins, 1 round in all\n" in answer.out
    assert "Finished 1 round: " in answer.out
    shown = command("show", "runs/spec").out
    sent = json.loads(command("show", "runs/spec", "--json").out)["bytes_up"]
    assert sent < 1e6
    assert f" {sent / 1e3:.1f} kB up" in shown


def test_evaluating_on_data_that_do_not_fit_is_wrong_usage(command: Command) -> None:
    command("run", "spec.toml")
    answer = command("evaluate", "runs/spec", "--data", "synthetic")
    assert answer.code == 2
    assert answer.err.startswith("error: data: the model does not fit the data set synthetic (an example is (60,)")


def test_warnings_are_one_line(command: Command) -> None:
    command("run", "spec.toml", "--set", "run.checkpoint_seconds=0.0")
    newest = Path("runs/spec/checkpoints/round-00000002.safetensors")
    newest.write_bytes(newest.read_bytes()[:-1])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        answer = command("show", "runs/spec")
    assert answer.code == 0
    assert answer.err.startswith(f"warning: {newest}: ")
    assert answer.err.endswith("it is not used\n")
    assert answer.err.count("\n") == 1


def test_damage_is_said_and_a_run_is_begun_again_only_if_asked(command: Command) -> None:
    command("run", "spec.toml", "--set", "run.rounds=4", "--set", "run.checkpoint_seconds=0.0")
    before = digest("runs/spec")
    for path in Path("runs/spec/checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with warnings.catch_warnings(action="default"):
        refused, exported = command("resume", "runs/spec"), command("export", "runs/spec", "model.safetensors")
        evaluated, again = command("evaluate", "runs/spec"), command("resume", "runs/spec", "--from-start")
    assert refused.code == exported.code == evaluated.code == 2
    assert "error: runs/spec: cannot continue: no intact checkpoint is left" in refused.err
    assert "`fedquilt resume runs/spec --from-start`" in refused.err
    assert "error: runs/spec: has no intact checkpoint" in exported.err
    assert "error: runs/spec: has no intact checkpoint" in evaluated.err
    assert (again.code, digest("runs/spec")) == (0, before)
    assert len(list(Path("runs/spec/set_aside").iterdir())) == 3


def test_what_needs_a_lost_record_is_said_of_the_others(command: Command) -> None:
    command("run", "spec.toml", "--set", "run.rounds=4", "--set", "run.checkpoint_seconds=0.0")
    path = Path("runs/spec/metrics.jsonl")
    path.write_text(path.read_text().replace('"round": 2', '"round": 6'))
    with warnings.catch_warnings(action="default"):
        shown, again = command("show", "runs/spec"), command("resume", "runs/spec")
        compared = command("report", "runs/spec", "--out", "report")
    for answer in (shown, again):
        assert answer.code == 0
        assert "line 2 is damaged (its checksum does not match), the records of round 2 are lost" in answer.err
        assert answer.err.count("line 2") == 1
    for name in ("best", "left out", "time", "sent"):
        assert re.search(rf"^{name} .* of the 3 rounds|^{name} .* in the 3 rounds", shown.out, re.MULTILINE)
    assert "best" not in again.out
    # What was damaged is set aside by then, and the gap is left.
    assert "metrics.jsonl: the records of round 2 are lost; the records of 3 rounds are intact" in compared.err
    row = Path("report/tables/runs.md").read_text().splitlines()[2].split(" | ")
    assert row[6] == "–", "one of the last ten"
    assert [row[n][:2] for n in (7, 10)] == ["≥ "] * 2
    assert row[5] != "–"


def in_a_process(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedquilt", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_process_that_succeeds(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    done = in_a_process(
        "run", "spec.toml", "--set", "engine.name=processes", "--set", "engine.workers=2", folder=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Model SHA-256: {digest(str(tmp_path / 'runs' / 'spec'))}\n" in done.stdout


def test_process_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.replace("rounds = 2", "rounds = 0"))
    done = in_a_process("run", "spec.toml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: spec.toml: [run] rounds: must be at least 1, got 0\n"


def test_process_that_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.replace("rounds = 2", "rounds = 1000000"))
    words = [sys.executable, "-m", "fedquilt", "run", "spec.toml"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, **pipes) as process:  # type: ignore[call-overload]
        while not process.stdout.readline().startswith("round "):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "; nothing is lost.\n" in out
    assert out.endswith("Continue with: fedquilt resume runs/spec\n")
    about = fedquilt.summary(tmp_path / "runs" / "spec")
    assert about["state"] == "interrupted"
    assert about["saved_round"] == about["round"] > 0


# Progress


def record(number: int, accuracy: float | None, dropped: int = 0) -> dict[str, object]:
    loss = None if accuracy is None else 1.0
    return {"round": number, "accuracy": accuracy, "loss": loss, "dropped": [{}] * dropped}


def console(terminal: bool, width: int = 120) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=width, _environ={}), file


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize(
    "title", ["spec", "[1/2] lr=0.1 [/b]", "[1/12] lr=0.1,epochs=5,batch=inf,momentum=0.9,alpha=0.5"]
)
def test_terminal_shows_the_title_a_bar_the_time_left_and_how_it_goes(width: int, title: str) -> None:
    screen, file = console(terminal=True, width=width)
    live = watcher(screen, title)
    assert isinstance(live, Live)
    live.stage("loading digits")
    live.begin(History([record(1, 0.25)]), 2000)
    live.heard(2, 4)
    live.round(record(2, 0.5, dropped=1))
    live.round(record(2000, None))
    live.close()
    live.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    lines = text.replace("\r", "\n").splitlines()
    assert lines[0] == f"{title}: loading digits …"
    assert all(len(line) <= width for line in lines[1:])
    assert "round 1/2000" in text
    assert "accuracy 25.00%" in text
    shown = text[text.rindex(title) :]
    assert "…" not in shown
    assert "━━━━━━━━━━  round 2000/2000  0:00 left" in shown
    assert "accuracy 50.00%  best 50.00%  1 left out" in shown
    assert "rounds/s" in shown


def test_terminal_that_never_began_shows_nothing() -> None:
    screen, file = console(terminal=True)
    Live(screen, "spec").close()
    assert file.getvalue() == ""


def test_terminal_shows_the_loss_of_a_run_without_accuracy() -> None:
    screen, file = console(terminal=True)
    live = watcher(screen, "line")
    live.begin(History([]), 1)
    live.round(record(1, None) | {"loss": 0.25, "metrics": {"rmse": 0.5}})
    live.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    assert "accuracy –  best –" in text
    assert "loss 0.2500  rmse 0.5000" in text[text.rindex("round 1/1") :]


def test_elsewhere_there_are_plain_lines() -> None:
    screen, file = console(terminal=False)
    lines = watcher(screen, "spec")
    assert isinstance(lines, Lines)
    lines.begin(History([]), 3)
    lines.heard(1, 2)
    for number in (1, 2, 3):
        lines.round(record(number, 0.5 if number == 3 else None, dropped=number))
    lines.close()
    written = file.getvalue().splitlines()
    assert written[0] == "spec: begins, 3 rounds in all"
    assert written[1].startswith("round 1/3  accuracy –  1 left out  ")
    assert written[2].startswith("round 3/3  accuracy 50.00%  loss 1.0000  3 left out  ")
    assert len(written) == 3, "rounds that follow one another quickly are left out, but not the last"


def test_lines_say_where_a_run_goes_on() -> None:
    screen, file = console(terminal=False)
    Lines(screen, "spec").begin(History([record(1, 0.5)]), 3)
    assert file.getvalue() == "spec: continues after round 1, 3 rounds in all\n"


@pytest.mark.parametrize(("seconds", "text"), [(1.0, "4.0 rounds/s, 0:02 left"), (8.0, "2.0 s/round, 0:12 left")])
def test_pace(monkeypatch: pytest.MonkeyPatch, seconds: float, text: str) -> None:
    """Four of ten rounds were done in that time."""
    pace = Pace(5, 15)
    pace.done = 9
    monkeypatch.setattr("time.monotonic", lambda: pace.begun + seconds)
    assert pace.text() == text


def test_a_wrapper_in_the_place_of_a_method_and_the_other_way_round(command: Command) -> None:
    answer = command("run", "spec.toml", "--set", "method.name=fed_vc")
    assert answer.code == 2
    assert "[method] name: 'fed_vc' changes a method: write it as [[wrap]]" in answer.err
    text = Path("spec.toml").read_text()
    Path("spec.toml").write_text(text + '\n[[wrap]]\nname = "fed_avg"\n')
    answer = command("run", "spec.toml")
    assert answer.code == 2
    assert "[wrap 1] name: 'fed_avg' is a method: write it in [method]" in answer.err


def test_a_run_that_failed_says_so_and_why(command: Command) -> None:
    text = Path("spec.toml").read_text()
    wrapped = text + '\n[[wrap]]\nname = "server_training"\nshare = 0.5\nlr = 3e38\nbatch = 1\nepochs = 3\n'
    Path("spec.toml").write_text(wrapped)
    assert command("run", "spec.toml").code == 1
    out = command("show", "runs/spec").out
    assert "failed" in out
    assert "diverged in round 1" in " ".join(out.split())
    assert "continue with" not in out


def test_a_mistake_of_a_wrapper_names_its_table(command: Command) -> None:
    text = Path("spec.toml").read_text()
    Path("spec.toml").write_text(text + '\n[[wrap]]\nname = "fed_prox"\n[[wrap]]\nname = "fed_ir"\ntarget = "server"\n')
    answer = command("run", "spec.toml")
    assert answer.code == 2
    assert "[wrap 2] target:" in answer.err


def test_show_diagnose_and_what_was_simulated(command: Command) -> None:
    text = Path("spec.toml").read_text()
    more = '\n[[simulate]]\nname = "dropout"\nprobability = 0.5\n[[simulate]]\nname = "stragglers"\n'
    Path("spec.toml").write_text(text + more + '[[wrap]]\nname = "own_test"\n')
    assert command("run", "spec.toml").code == 0
    out = " ".join(command("show", "runs/spec", "--diagnose").out.split())
    for words in ("conflicts two clients' models differ on", "divergence", "worst tenth of clients", "simulated"):
        assert words in out
