"""What a sweep shows: a table that fits 80 columns on a terminal, lines elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

import fedquilt
from fedquilt.experiment.sweeping.board import Board, TrialProgress
from fedquilt.experiment.sweeping.display import LiveTable, SweepLines, overview
from fedquilt.experiment.sweeping.executors import Advanced, Begun, State

EXPERIMENT = fedquilt.experiment(
    {
        "run": {"rounds": 10},
        "data": {"name": "digits"},
        "partition": {"name": "iid", "clients": 5},
        "model": {"name": "softmax_regression"},
        "method": {"name": "fed_avg"},
        "case": {"method": {"FedAvg with a very long name, as long as names may become": {"method": {"epochs": 1}}}},
        "tune": {"by": "test", "method.lr": [0.01 * n for n in range(1, 41)]},
        "repeat": {"run.seed": [1, 2]},
    }
)


def board(*states: State) -> Board:
    made = Board(jobs=2)
    for trial, state in zip(EXPERIMENT.trials, states, strict=False):
        made.add(TrialProgress(trial, "waiting" if state == "running" else state))
    for number, state in enumerate(states):
        if state == "running":
            made.started(number)
            made.heard(Begun(number, 0, 10))
    return made


FINISHED: State = "finished"
WAITING: State = "waiting"


def shown(made: Board, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    console.print(LiveTable(console, "rates").drawn(made))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_table_fits_80_columns_and_shows_what_runs() -> None:
    made = board(*[FINISHED] * 30, "failed", "running", "running", *[WAITING] * 40)
    made.heard(Advanced(31, 5, 0.875, 0.5))
    lines = shown(made)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert lines[0].startswith("rates: 30 finished, 1 failed, 2 running, 40 waiting; about ")
    (running,) = [line for line in lines if "5/10" in line]
    assert "running" in running
    assert "87.50%" in running
    assert sum("waiting" in line for line in lines[3:]) > 3
    assert sum("finished" in line for line in lines[3:]) > 3


def test_the_best_so_far_is_a_mean_over_repeats_and_no_repeat() -> None:
    made = board("finished", "finished", "finished", "finished", "diverged")
    for number, accuracy in enumerate((0.9, 0.1, 0.6, 0.6, 0.99)):
        made.change(number, accuracy=accuracy)
    assert made.best == ("FedAvg with a very long name, as long as names may become, lr=0.02", "60.00%")
    losses = board("finished", "finished")
    losses.change(0, loss=2.0)
    losses.change(1, loss=1.0)
    assert losses.best == ("FedAvg with a very long name, as long as names may become, lr=0.01", "loss 1.5000")


def test_time_left_counts_what_runs_and_what_waits() -> None:
    made = board("running", "waiting", "waiting")
    assert made.left() is None
    made._from[0] = (0, made._from[0][1] - 20.0)
    made.heard(Advanced(0, 5, 0.5, 0.5))
    left = made.left()
    assert left is not None
    assert abs(left - (20 + 40 + 40) / 2) < 1, "four seconds a round, 25 rounds, two at once"
    assert overview(made).endswith("about 0:50 left")


def test_lines() -> None:
    console = Console(file=io.StringIO(), width=200)
    lines = SweepLines(console, "rates")
    made = board("finished", "running", "waiting")
    made.rows[0] = replace(made.rows[0], kept=True)
    lines.show(made)
    made.change(1, state="failed", reason="no such layer")
    lines.show(made)
    lines.show(made)
    made.change(2, state="running", round=7)
    lines.show(made)
    made.change(2, state="failed", reason="no such layer")
    lines.show(made)
    assert isinstance(console.file, io.StringIO)
    name, last = (trial.name for trial in EXPERIMENT.trials[1:3])
    assert console.file.getvalue().splitlines() == [
        "rates: 1 trial of 3 finished before",
        f"rates: [2/3] {name}: starts",
        f"rates: [2/3] {name}: failed after 0 rounds in 0:00: no such layer",
        f"rates: [3/3] {last}: continues after 7 rounds",
        f"rates: [3/3] {last}: failed after 7 rounds in 0:00: for the same reason as {name}",
    ]
