"""What overlaps: a round's evaluation with the next one's clients, and groups of clients with each other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

import fedquilt
from fedquilt.base.errors import FedquiltError, WorkerError
from fedquilt.experiment.folder import RunFolder
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures

PATIENCE = 20.0
"""Seconds; whoever does not overlap waits for that long, and fails."""


class Noted(nn.Module):
    """Notes every training step in a file, a byte each; only workers do."""

    def __init__(self, note: Path):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.note = note

    def forward(self, x):
        if multiprocessing.parent_process() is not None:
            self.at_work()
        return self.linear(x)

    def at_work(self):
        if self.training:
            with self.note.open("ab") as file:
                file.write(b".")

    def wait_for(self, steps):
        deadline = time.monotonic() + PATIENCE
        while not (self.note.exists() and self.note.stat().st_size >= steps):
            assert time.monotonic() < deadline, f"no step {steps}"
            time.sleep(0.002)


class Patient(Noted):
    """Is not evaluated before the seventh step: there are six a round."""

    def at_work(self):
        super().at_work()
        if not self.training:
            self.wait_for(7)


def test_a_round_is_evaluated_while_the_next_ones_clients_train(blobs, unbalanced, tmp_path):
    """With one task after the other, the evaluation of the first round would wait for ever."""
    method = fedquilt.fed_avg(fraction=1.0, batch=float("inf"))
    engine = fedquilt.processes(workers=2)
    result = fedquilt.train(Patient(tmp_path / "steps"), blobs, unbalanced, method, rounds=2, engine=engine)
    assert len(result.history.accuracy) == 2
    assert (tmp_path / "steps").stat().st_size == 12


class Sociable(Noted):
    """Goes on with its step only when there is another client's."""

    def at_work(self):
        super().at_work()
        if self.training:
            self.wait_for(2)


def test_groups_share_the_workers(blobs, tmp_path):
    """Every client is a group of its own; with one after the other, the first would wait for ever."""
    held = Partition.of([range(120), range(120, 240)])
    method = fedquilt.local_only(batch=float("inf"), holdout=0.0)
    engine = fedquilt.processes(workers=2)
    result = fedquilt.train(Sociable(tmp_path / "steps"), blobs, held, method, rounds=1, engine=engine)
    assert result.history.records[0]["dropped"] == []


def _timeless(result):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in result.history]


MANY = {
    "local_only": lambda: fedquilt.local_only(batch=8, momentum=0.9),
    "fl_hc": lambda: fedquilt.fl_hc(fedquilt.fed_avg(fraction=0.5, batch=8), rounds=1, clusters=3),
    "scaffold in clusters": lambda: fedquilt.fl_hc(fedquilt.scaffold(fedquilt.fed_avg(fraction=0.6)), rounds=1),
    "ditto": lambda: fedquilt.ditto(fedquilt.fed_avg(fraction=0.5, batch=8)),
}


@pytest.mark.parametrize("name", MANY)
def test_everything_measured_is_that_of_the_inline_engine(name, blobs, unbalanced, smooth):
    """Many models at work at once: of groups, of evaluations on both splits and on clients' own data, diagnosed."""

    def go(engine):
        options = {"train_loss": True, "diagnose": True, "engine": engine}
        return fedquilt.train(smooth, blobs, unbalanced, MANY[name](), rounds=4, **options)

    expected = go(fedquilt.inline())
    for workers in (1, 2, 4):
        result = go(fedquilt.processes(workers=workers))
        assert result.digest == expected.digest
        assert _timeless(result) == _timeless(expected)


class Mortal(Noted):
    """Kills its process in an evaluation, as often as asked; a byte is left in the note each time."""

    def __init__(self, note, deaths):
        super().__init__(note)
        self.deaths = deaths

    def at_work(self):
        died = self.note.stat().st_size if self.note.exists() else 0
        if not self.training and died < self.deaths:
            with self.note.open("ab") as file:
                file.write(b".")
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:worker process .* died:RuntimeWarning")
def test_a_worker_that_dies_in_an_evaluation_costs_nothing(blobs, unbalanced, tmp_path):
    module, method = Mortal(tmp_path / "deaths", 2), fedquilt.fed_avg(fraction=1.0, batch=8)
    expected = fedquilt.train(module, blobs, unbalanced, method, rounds=3, engine=fedquilt.inline())
    result = fedquilt.train(module, blobs, unbalanced, method, rounds=3, engine=fedquilt.processes(workers=2))
    assert (tmp_path / "deaths").stat().st_size == 2
    assert (result.digest, _timeless(result)) == (expected.digest, _timeless(expected))


@pytest.mark.filterwarnings("ignore:worker process .* died:RuntimeWarning")
def test_three_deaths_in_one_evaluation_end_the_run(blobs, unbalanced, tmp_path):
    module = Mortal(tmp_path / "deaths", 3)
    with pytest.raises(WorkerError, match="3 worker processes died on evaluation"):
        fedquilt.train(module, blobs, unbalanced, fedquilt.fed_avg(), rounds=2, engine=fedquilt.processes(workers=2))


class Doomed(Noted):
    """Kills its process in training once others have trained often enough, while an evaluation takes its time."""

    def at_work(self):
        if not self.training:
            time.sleep(0.3)
            return
        with self.note.open("ab") as file:
            file.write(b".")
        if self.note.stat().st_size > 12:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:worker process .* died:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_deaths_in_the_next_round_do_not_cost_the_round_that_is_evaluated(blobs, unbalanced, tmp_path):
    """Six clients with a step each: all die in the third round, the first of them while the second is evaluated."""
    module, method = Doomed(tmp_path / "steps"), fedquilt.fed_avg(fraction=1.0, batch=float("inf"))
    options = {"engine": fedquilt.processes(workers=2), "out": tmp_path / "run"}
    result = fedquilt.train(module, blobs, unbalanced, method, rounds=3, **options)
    assert [len(record["dropped"]) for record in result.history] == [0, 0, 6]
    assert [record["applied"] for record in result.history] == [True, True, False]
    assert result.history.accuracy[1] == result.history.accuracy[2]


def test_a_run_that_stops_at_an_accuracy_gives_the_next_round_up(blobs, unbalanced, smooth, tmp_path):
    def go(rounds, **options):
        method, engine = fedquilt.fed_avg(lr=0.1, batch=8), fedquilt.processes(workers=2)
        return fedquilt.train(smooth, blobs, unbalanced, method, rounds, engine=engine, **options)

    whole = go(10)
    accuracies = whole.history.accuracy
    reached = next(n for n, accuracy in enumerate(accuracies, start=1) if accuracy >= accuracies[-1])
    assert 1 < reached < 10
    stopped = go(10, stop_at=accuracies[-1], out=tmp_path / "run")
    assert len(stopped.history) == stopped.run.round == reached
    assert stopped.digest == go(reached).digest
    assert RunFolder(tmp_path / "run").latest()[0].round == reached


def _refusing(select, last):
    """Select clients as `select` does, but for so many rounds only."""
    left = iter(range(last))

    def chosen(sizes, rng):
        if next(left, None) is None:
            raise FedquiltError("nobody is there any more")
        return select(sizes, rng)

    chosen.version = 1
    return chosen


@pytest.mark.parametrize("engine", [fedquilt.inline(), fedquilt.processes(workers=2)], ids=["inline", "processes"])
def test_a_round_that_cannot_be_planned_does_not_cost_the_one_before(engine, blobs, unbalanced, smooth, tmp_path):
    method = fedquilt.fed_avg(fraction=0.5)
    method = replace(method, select=_refusing(method.select, 3))
    with pytest.raises(FedquiltError, match="nobody is there"):
        fedquilt.train(smooth, blobs, unbalanced, method, rounds=5, engine=engine, out=tmp_path / "run")
    assert RunFolder(tmp_path / "run").latest()[0].round == len(RunFolder(tmp_path / "run").history()) == 3


def test_seconds_add_up_to_the_time_of_the_run(federate: Callable[..., Federation]) -> None:
    """Time that a round's reader takes is in the next one's."""
    federation = federate(fedquilt.fed_avg(fraction=0.5))
    with fedquilt.inline().open(federation) as session:
        begun, seconds = time.perf_counter(), []
        for _, record in rounds(federation.server, session, federation.start(), 6, Measures(every=2)):
            spent = time.perf_counter() - begun
            seconds.append(record["seconds"])
            assert sum(seconds) <= spent + 0.001  # they are rounded
            time.sleep(0.05)
    assert min(seconds[1:]) > 0.05
