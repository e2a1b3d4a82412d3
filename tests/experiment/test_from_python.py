"""Runs from Python: the run folder of the command line, progress where somebody looks, results that show themselves."""

from __future__ import annotations

import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedquilt
from fedquilt.algorithm.loss import with_loss
from fedquilt.base.errors import MissingExtraError, RunError, SpecError
from fedquilt.experiment.objective import chosen_loss
from fedquilt.experiment.progress import Lines, Live, default_display

METHOD = fedquilt.fed_avg(fraction=0.5, batch=8)


@pytest.fixture
def kept(tmp_path, blobs, unbalanced, smooth):
    result = fedquilt.train(
        smooth,
        blobs,
        unbalanced,
        METHOD,
        rounds=4,
        engine=fedquilt.inline(),
        out=tmp_path / "mine",
        keep="best",
        validation=0.2,
        metrics=["accuracy", "error"],
    )
    return tmp_path / "mine", result


def test_the_folder_is_that_of_the_command_line(kept, command):
    folder, result = kept
    spec = ("--set", "run.keep=best", "--set", "run.validation=0.2")
    assert command("run", "spec.toml", "--out", "other", *spec).code == 0
    names = [{path.name for path in each.iterdir()} for each in (folder, folder.parent / "other")]
    assert names[0] == names[1]
    shown = command("show", str(folder))
    assert shown.code == 0
    assert result.digest in shown.out
    reported = fedquilt.report([folder, folder.parent / "other"], out=folder.parent / "report")
    assert [row[1] for row in reported.tables[0].rows] == ["fed_avg", "fed_avg_m"]


@pytest.mark.parametrize("which", ["last", "best"])
def test_it_can_be_evaluated_and_exported(which, kept, blobs, smooth, tmp_path):
    folder, result = kept
    fresh = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    found = fedquilt.evaluate(folder, data=blobs, model=fresh, which=which)
    record = result.history.records[(result.best.round if which == "best" else 4) - 1]
    assert (found["accuracy"], found["loss"]) == (record["accuracy"], pytest.approx(record["loss"]))
    assert found["metrics"] == {"error": pytest.approx(record["metrics"]["error"])}
    held_out = fedquilt.evaluate(folder, data=blobs, model=fresh, which=which, split="validation")
    assert held_out["accuracy"] == record["validation_accuracy"]
    file = fedquilt.export(folder, tmp_path / "model.safetensors", which=which)
    smooth.load_state_dict(load_file(file))
    right = (smooth(blobs.test.x).argmax(1) == blobs.test.y).double().mean()
    assert found["accuracy"] == pytest.approx(float(right))


def test_what_evaluation_needs_is_said(kept, blobs, smooth, command):
    folder, _ = kept
    answer = command("evaluate", str(folder))
    assert answer.code == 2
    assert (
        "is a run from Python, and its data and model are in no file: give them, as in fedquilt.evaluate(" in answer.err
    )
    with pytest.raises(RunError, match="holds a model with other layers or shapes"):
        fedquilt.evaluate(folder, data=blobs, model=nn.Linear(8, 3))
    command("run", "spec.toml", "--out", "other")
    with pytest.raises(SpecError, match="describes its model; do not pass another"):
        fedquilt.evaluate("other", model=smooth)


def test_it_is_evaluated_with_the_loss_it_was_trained_with(unbalanced, blobs, tmp_path):
    """Also where the loss is the method's own, and not an argument of `train`."""

    def absolute(outputs, targets):
        return (outputs - nn.functional.one_hot(targets, 3)).abs().sum(1)

    losses = {"argument": {"loss": absolute}, "method": {}}
    for name, given in losses.items():
        method = METHOD if given else with_loss(METHOD, chosen_loss(absolute))
        folder = tmp_path / name
        ended = fedquilt.train(
            nn.Linear(8, 3), blobs, unbalanced, method, 1, engine=fedquilt.inline(), out=folder, **given
        )
        with pytest.raises(RunError, match="was trained with a loss of your own, which is in no file: give it, as in"):
            fedquilt.evaluate(folder, data=blobs, model=nn.Linear(8, 3))
        found = fedquilt.evaluate(folder, data=blobs, model=nn.Linear(8, 3), loss=absolute)
        assert found["loss"] == pytest.approx(ended.history.records[-1]["loss"])
    fedquilt.train(nn.Linear(8, 3), blobs, unbalanced, METHOD, 1, engine=fedquilt.inline(), out=tmp_path / "usual")
    with pytest.raises(SpecError, match="was trained with cross_entropy; do not pass another"):
        fedquilt.evaluate(tmp_path / "usual", data=blobs, model=nn.Linear(8, 3), loss=absolute)


@pytest.mark.parametrize("progress", [None, False])
def test_it_is_quiet_where_nobody_looks(progress, blobs, unbalanced, smooth, capfd):
    fedquilt.train(smooth, blobs, unbalanced, METHOD, rounds=2, engine=fedquilt.inline(), progress=progress)
    assert capfd.readouterr() == ("", "")


def test_lines_can_be_asked_for(blobs, unbalanced, smooth, capfd):
    fedquilt.train(smooth, blobs, unbalanced, METHOD, rounds=2, engine=fedquilt.inline(), progress=True)
    out = capfd.readouterr().out
    assert out.startswith("fed_avg: begins, 2 rounds in all\n")
    assert "round 2/2  accuracy" in out


def test_on_a_terminal_progress_is_shown_by_default(monkeypatch, blobs, unbalanced, smooth, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich then takes what it writes to for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    assert isinstance(default_display("mine"), Live)
    assert isinstance(default_display("mine", wanted=True), Live | Lines)
    fedquilt.train(smooth, blobs, unbalanced, METHOD, rounds=3, engine=fedquilt.inline())
    shown = capfd.readouterr().out
    assert "fed_avg" in shown
    assert "3/3" in shown
    heard = []

    class Own(fedquilt.Watcher):
        def round(self, record):
            heard.append(record["round"])

    fedquilt.train(smooth, blobs, unbalanced, METHOD, rounds=2, engine=fedquilt.inline(), watcher=Own())
    assert (heard, capfd.readouterr().out) == ([1, 2], "")  # a watcher takes the display's place


def test_results_show_themselves(kept):
    _, result = kept
    page = result._repr_html_()
    best = f"validation accuracy {100 * result.best.value:.2f}% in round {result.best.round}"
    assert f"<tr><td>best</td><td>{best}</td></tr>" in page
    assert result.digest in page
    assert "<td>error</td>" in page
    rounds = result.history._repr_html_()
    assert "<th>validation_accuracy</th>" in rounds
    assert rounds.count("<tr>") == 5
    assert "4 rounds" in rounds


def test_long_histories_are_cut():
    many = fedquilt.History([{"round": n, "accuracy": n / 100, "loss": 1.0} for n in range(1, 60)])
    assert many._repr_html_().count("<tr>") == 11
    assert "59 rounds, the last 10 evaluations" in many._repr_html_()
    assert fedquilt.History([])._repr_html_()


def test_as_a_data_frame(kept):
    _, result = kept
    frame = result.history.to_pandas()
    assert frame.index.tolist() == [1, 2, 3, 4]
    assert frame["accuracy"].tolist() == result.history.accuracy
    assert frame["error"].tolist() == [record["metrics"]["error"] for record in result.history]
    assert frame["gradients"].cumsum().tolist() == result.history.cumulative("gradients")[1]
    assert fedquilt.History([]).to_pandas().empty


def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"to_pandas\(\) needs an optional dependency; .*'fedquilt\[pandas\]'"):
        fedquilt.History([]).to_pandas()


def test_frozen_layers_too(tmp_path, blobs, unbalanced, smooth):
    """A run that trains the last layer alone: the other one is in the checkpoint, not in the module that is given."""
    options = {"rounds": 2, "engine": fedquilt.inline(), "trainable": 1}
    result = fedquilt.train(smooth, blobs, unbalanced, METHOD, **options, out=tmp_path / "run")
    with torch.no_grad():
        for value in smooth.parameters():
            value.zero_()
    found = fedquilt.evaluate(tmp_path / "run", data=blobs, model=smooth)
    assert found["accuracy"] == result.history.accuracy[-1]
