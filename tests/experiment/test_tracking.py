"""Trackers and watchers: all are told the same, none can end the run by failing, and each tool really keeps the curves."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from importlib.util import find_spec

import pytest

import fedquilt
from fedquilt.base.errors import MissingExtraError, SpecError
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.tracking.trackers import scalars

METHOD = fedquilt.fed_avg(fraction=0.5, batch=8)

OWN = """
import json
from pathlib import Path


class Notes:
    '''Keeps what it is told in a file.'''

    def start(self, about):
        self.file = Path(about.folder) / "notes.jsonl"
        self.say("start", about.name, about.settings["method"]["name"])

    def begin(self, history, last):
        self.say("begin", history.last, last)

    def round(self, record):
        self.say("round", record["round"], record["accuracy"])

    def end(self, result):
        self.say("end", None if result is None else result.digest)

    def say(self, *words):
        with self.file.open("a") as file:
            file.write(json.dumps(words) + "\\n")


class Nothing:
    pass


class Breaks(Notes):
    def round(self, record):
        raise OSError("the tracker's disk is full")
"""


def needs(*packages):
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)}: pip install 'fedquilt[tracking]'")


@pytest.fixture
def go(blobs, unbalanced, smooth):
    def train(rounds=3, **options):
        options = {"engine": fedquilt.inline(), "checkpoint_seconds": 0.0} | options
        return fedquilt.train(smooth, blobs, unbalanced, METHOD, rounds=rounds, **options)

    return train


def test_a_watcher_needs_only_the_methods_that_it_has(go):
    class Rounds:
        def __init__(self):
            self.heard_of = []

        def round(self, record):
            self.heard_of.append(record["round"])

    class All(fedquilt.Watcher):
        def __init__(self):
            self.told = []

        def stage(self, text):
            self.told.append("stage")

        def start(self, about):
            self.told.append(("start", about.name, about.folder, about.settings["run"]["rounds"]))

        def begin(self, history, last):
            self.told.append(("begin", history.last, last))

        def end(self, result):
            self.told.append(("end", result.digest))

    rounds, every = Rounds(), All()
    go(watcher=rounds)
    assert rounds.heard_of == [1, 2, 3]
    result = go(watcher=every)
    assert every.told == [("start", "fed_avg", None, 3), ("begin", 0, 3), ("end", result.digest)]


def test_a_run_that_fails_is_told_so(go):
    class Ends(fedquilt.Watcher):
        results: list = []  # noqa: RUF012

        def round(self, record):
            raise ZeroDivisionError

        def end(self, result):
            self.results.append(result)

    with pytest.raises(ZeroDivisionError):
        go(watcher=Ends())
    assert Ends.results == [None]


def test_an_own_tracker_in_a_spec(command, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    assert command("run", "spec.toml", "--out", "out", "--set", 'run.track=["mine:Notes"]').code == 0
    told = (tmp_path / "out" / "notes.jsonl").read_text().splitlines()
    history = fedquilt.summary("out")
    assert told[0] == '["start", "out", "fed_avg_m"]'
    assert [line.split(",")[0] for line in told[1:]] == ['["begin"', '["round"', '["round"', '["end"']
    assert history["digest"] in told[-1]
    assert command("resume", "out", "--rounds", "3").code == 0  # from any folder, as methods of one's own
    told = (tmp_path / "out" / "notes.jsonl").read_text().splitlines()[len(told) :]
    assert told[1] == '["begin", 2, 3]'
    refused = command("run", "spec.toml", "--out", "no", "--set", 'run.track=["mine:Notes"]', "--no-import")
    assert "would import code, which --no-import refuses" in refused.err


@pytest.mark.filterwarnings("always::RuntimeWarning")
def test_a_tracker_that_fails_does_not_end_the_run(command, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    plain = command("run", "spec.toml", "--out", "plain")
    answer = command("run", "spec.toml", "--out", "out", "--set", 'run.track=["mine:Breaks"]')
    assert answer.code == plain.code == 0
    assert answer.err.count("mine:Breaks failed, and is not called again in this run, which continues: OSError") == 1
    assert fedquilt.summary("out")["digest"] == fedquilt.summary("plain")["digest"]


@pytest.mark.parametrize(
    ("track", "message"),
    [
        ('["tensorbored"]', "[run] track: no tracker is called 'tensorbored'; did you mean 'tensorboard'?"),
        ('["mine:Nothing"]', "[run] track: 'mine:Nothing' has none of the methods of a watcher: stage, start, begin"),
        ('"wandb"', "[run] track: must be a list"),
    ],
)
def test_mistakes(track, message, command, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    answer = command("run", "spec.toml", "--out", "out", "--set", f"run.track={track}")
    assert answer.code == 2
    assert message in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_names_the_extra(name, go, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    for module in [each for each in sys.modules if each.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingExtraError) as caught:
        go(track=[name])
    assert str(caught.value) == (
        f"the tracker {name} needs an optional dependency; install it with: pip install 'fedquilt[tracking]'"
    )


def test_train_refuses_a_tracker_that_there_is_not(go):
    with pytest.raises(SpecError, match="train: track: no tracker is called 'nothing'"):
        go(track=["nothing"])


@needs("tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_keeps_the_curves(go, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    go(rounds=2, track=["tensorboard"], out=tmp_path / "run")
    result = go(rounds=4, track=["tensorboard"], out=tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    for name in ("accuracy", "loss", "batches", "gradients", "bytes_up"):
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(r["round"], pytest.approx(r[name])) for r in result.history]
    assert "method.name" in str(events.Tensors("settings/text_summary")[0])


@needs("mlflow", "sqlalchemy")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_the_curves_in_one_run(go, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    go(rounds=2, track=["mlflow"], out=tmp_path / "run")
    result = go(rounds=4, track=["mlflow"], out=tmp_path / "run")
    base = sqlite3.connect(tmp_path / "mlflow.db")
    runs = base.execute("select run_uuid, name, status from runs").fetchall()
    assert [row[1:] for row in runs] == [("run", "FINISHED")]
    rows = base.execute("select step, value from metrics where key = 'accuracy' order by step").fetchall()
    assert rows == [(r["round"], pytest.approx(r["accuracy"])) for r in result.history]
    assert base.execute("select value from params where key = 'method.name'").fetchall() == [("fed_avg",)]
    base.close()


@needs("wandb")
@pytest.mark.timeout(120)
def test_wandb_keeps_the_curves_offline(tmp_path):
    """In a process of its own: it starts another one, and threads."""
    script = """
import fedquilt, torch
data = fedquilt.digits()
if __name__ == "__main__":
    clients = fedquilt.iid(data.train.y.numpy(), clients=10)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    fedquilt.train(model, data, clients, fedquilt.fed_avg(), rounds=3, track=["wandb"], out="run")
"""
    (tmp_path / "track.py").write_text(script)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    subprocess.run([sys.executable, "track.py"], cwd=tmp_path, check=True, env=environment, timeout=100)
    (folder,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    identifier = (tmp_path / "run" / "tracking" / "wandb").read_text()
    assert folder.name.endswith(identifier)
    content = next(folder.glob("run-*.wandb")).read_bytes()
    values = [record["accuracy"] for record in RunFolder(tmp_path / "run").history()]
    assert all(str(value).encode() in content for value in values)
    assert re.search(rb"fed_avg", content)


def test_what_is_logged_of_a_round(go):
    record = go(rounds=1, validation=0.1, train_loss=True).history.records[0]
    found = scalars(record)
    assert found["clients"] == len(record["clients"])
    for name in ("accuracy", "validation_accuracy", "train_loss", "batches", "gradients", "seconds", "bytes_down"):
        assert found[name] == record[name]
