"""The best model is kept beside the last one, and runs end early where they are asked to; both survive `kill -9`."""

from __future__ import annotations

import os
import signal
import warnings

import pytest
import torch
from safetensors.torch import load_file

import fedquilt
from fedquilt.analysis.standing import Standing
from fedquilt.base.errors import RunError
from fedquilt.experiment.folder import RunFolder

METHOD = fedquilt.fed_avg(lr=0.9, cohort=1, batch=8)
"""One client a round, at a large rate: accuracy goes up and down, and the best round is not the last."""


@pytest.fixture
def go(blobs, unbalanced, smooth):
    def train(rounds=12, **options):
        options = {"engine": fedquilt.inline(), "seed": 3, "keep": "best"} | options
        return fedquilt.train(smooth, blobs, unbalanced, METHOD, rounds=rounds, **options)

    return train


def best_of(records, by="accuracy"):
    return max(records, key=lambda record: record[by])["round"]


def killed(train, after, **options):
    """Run in a process that kills itself with SIGKILL once a round is recorded."""

    class Killer:
        def begin(self, history, last): ...
        def heard(self, clients, total): ...
        def round(self, record):
            if record["round"] == after:
                os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            warnings.simplefilter("ignore")
            train(watcher=Killer(), **options)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_the_best_model_is_that_of_the_best_round(go, tmp_path, blobs):
    result = go(out=tmp_path / "run")
    assert result.best.round == best_of(result.history) < 12
    assert (result.best.by, result.best.value) == ("accuracy", max(result.history.accuracy))
    until = go(rounds=result.best.round, keep="last")
    assert all(torch.equal(a, b) for a, b in zip(until.model.parameters(), result.best_model.parameters(), strict=True))
    right = (result.best_model(blobs.test.x).argmax(1) == blobs.test.y).double().mean()
    assert result.best.value == pytest.approx(float(right))
    # From the folder alone, too.
    fedquilt.export(tmp_path / "run", tmp_path / "best.safetensors", which="best")
    written = load_file(tmp_path / "best.safetensors")
    assert all(torch.equal(written[name], value) for name, value in until.model.state_dict().items())
    fedquilt.export(tmp_path / "run", tmp_path / "last.safetensors")
    assert not torch.equal(load_file(tmp_path / "last.safetensors")["0.weight"], written["0.weight"])
    about = fedquilt.summary(tmp_path / "run")
    assert about["best_kept"] == result.best.round == about["best_model"]["round"]


def test_validation_accuracy_decides_where_there_is_any(go):
    result = go(validation=0.3)
    assert result.best.by == "validation_accuracy"
    assert result.best.round == best_of(result.history, "validation_accuracy")


def test_without_it_only_the_last_is_kept(go, tmp_path):
    result = go(keep="last", out=tmp_path / "run")
    assert result.best_model is None
    assert not RunFolder(tmp_path / "run").bests
    with pytest.raises(RunError, match=r'no best model is kept; a run with \[run\] keep = "best" keeps it'):
        fedquilt.export(tmp_path / "run", tmp_path / "best.pt", which="best")
    with pytest.raises(RunError, match="which: must be 'last' or 'best', got 'worst'"):
        fedquilt.export(tmp_path / "run", tmp_path / "best.pt", which="worst")


@pytest.mark.parametrize("seconds", [0.0, 60.0])
@pytest.mark.parametrize("kills", [(1,), (4,), (7, 11), (2, 3, 5, 8)])
def test_a_killed_run_has_the_same_best_model(seconds, kills, go, tmp_path):
    """With a checkpoint a round, and with none before the end: rounds are then done again."""
    options = {"checkpoint_seconds": seconds, "patience": 9}
    whole = go(out=tmp_path / "whole", **options)
    for after in kills:
        killed(go, after, out=tmp_path / "killed", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without a checkpoint, it says that it starts again
        result = go(out=tmp_path / "killed", **options)
    assert (result.digest, result.best, result.stopped) == (whole.digest, whole.best, whole.stopped)
    found = [RunFolder(tmp_path / name).best() for name in ("whole", "killed")]
    assert found[0].run.round == found[1].run.round == whole.best.round
    assert found[0].about["model"] == found[1].about["model"]


def test_the_best_as_of_the_checkpoint_before_is_there_too(go, tmp_path):
    """If the newest checkpoint is damaged the one before it serves, with the model that was best then."""
    whole = go(out=tmp_path / "run", checkpoint_seconds=0.0)
    for rounds in range(2, 12):
        folder = RunFolder(tmp_path / f"until-{rounds}")
        go(rounds=rounds, out=folder.path, checkpoint_seconds=0.0)
        folder.checkpoints[0].write_bytes(b"damaged")
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            result = go(out=folder.path)
        assert not any("best model so far" in str(warning.message) for warning in heard)
        assert result.best == whole.best
        assert folder.best().about["model"] == RunFolder(tmp_path / "run").best().about["model"]


@pytest.mark.filterwarnings("ignore:.*is damaged or cut short")
def test_a_lost_best_model_is_said_and_training_goes_on(go, tmp_path):
    folder = RunFolder(tmp_path / "run")
    best = go(rounds=6, out=folder.path).best.round
    for path in folder.bests:
        path.write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match=f"the best model so far, of round {best}, is not there any more"):
        assert go(rounds=7, out=folder.path).history.last == 7


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_damaged_best_model_is_said_and_not_replaced_by_one_before(go, tmp_path):
    """Any bit: the model that was best before it must not be taken for the best."""
    folder = RunFolder(tmp_path / "run")
    go(out=folder.path, checkpoint_seconds=0.0)
    assert len(folder.bests) == 2
    good = folder.bests[0].read_bytes()
    for place in range(0, len(good), 97):
        folder.bests[0].write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        assert any(folder.bests[0].name in text for text in folder.read().damage)
        with pytest.raises(RunError, match="is damaged"):
            fedquilt.export(folder.path, tmp_path / "best.pt", which="best")


def test_from_start_begins_with_no_best_model(go, tmp_path):
    go(rounds=6, out=tmp_path / "run")
    again = go(rounds=6, out=tmp_path / "run", from_start=True)
    assert RunFolder(tmp_path / "run").best().run.round == again.best.round
    assert list((tmp_path / "run" / "set_aside").glob("best-*"))


def test_patience(go, tmp_path):
    """The run ends where the best of the rounds so far is `patience` rounds ago, for the first time."""
    every = go(rounds=60).history.accuracy
    best, expected = 0, None
    for place, accuracy in enumerate(every):
        best = place if accuracy > every[best] else best
        if expected is None and place - best >= 5:
            expected = place + 1
    result = go(rounds=60, patience=5, out=tmp_path / "run")
    assert len(result.history) == expected < 60
    assert result.stopped == f"test accuracy did not improve for 5 rounds after round {expected - 5}"
    about = fedquilt.summary(tmp_path / "run")
    assert (about["state"], about["stopped"]) == ("finished", result.stopped)
    assert len(go(rounds=60, patience=5, out=tmp_path / "run").history) == expected  # it does not go on


def test_patience_counts_evaluated_rounds_only(go):
    result = go(rounds=60, patience=5, eval_every=4)
    assert result.history.last % 4 == 0
    assert result.history.records[-1]["accuracy"] is not None


def test_a_budget_of_seconds(go, tmp_path):
    result = go(rounds=100_000, stop_after_seconds=0.3, out=tmp_path / "run", eval_every=3)
    assert 0.3 <= sum(record["seconds"] for record in result.history) < 3
    assert result.stopped == "0.3 seconds had passed"
    assert result.history.last % 3 == 0
    assert fedquilt.summary(tmp_path / "run")["state"] == "finished"
    again = go(rounds=100_000, stop_after_seconds=0.3, out=tmp_path / "run", eval_every=3)  # the time is used up
    assert again.history.last == result.history.last


def test_a_run_that_ends_with_its_last_round_was_not_stopped(go):
    assert go(rounds=1, stop_at=1e-9).stopped is None


def test_where_accuracy_is_not_measured_the_lowest_loss_is_best():
    records = [{"round": n, "accuracy": None, "loss": x, "seconds": 1.0} for n, x in enumerate((3.0, 1.0, 2.0), 1)]
    standing = Standing.of(records)
    assert standing.best == (2, "loss", 1.0)
    assert standing.ending(None, 1, None) == "test loss did not improve for 1 round after round 2"


def test_on_the_command_line(command):
    spec = (
        "--set",
        "run.keep=best",
        "--set",
        "run.validation=0.2",
        "--set",
        "run.patience=1",
        "--set",
        "run.rounds=99",
    )
    answer = command("run", "spec.toml", "--out", "out", *spec, "--set", "method.lr=3.0")
    assert answer.code == 0
    assert "Stopped early: validation accuracy did not improve for 1 round" in answer.out
    assert "Best model: that of round" in answer.out
    shown = command("show", "out").out
    assert "finished early: validation accuracy did not improve" in shown
    assert "--which best of evaluate and export" in shown
    best = fedquilt.summary("out")["best_model"]
    found = command("evaluate", "out", "--which", "best", "--split", "validation", "--json").out
    assert f'"round": {best["round"]}' in found
    assert f'"accuracy": {best["value"]}' in found
    assert command("export", "out", "best.pt", "--which", "best").code == 0
    assert "Stopped early: validation accuracy" in command("resume", "out").out
