"""A run whose loss is not finite, or whose clients send nothing usable, ends as diverged, and everybody says so."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedquilt
from fedquilt.analysis.curves import History
from fedquilt.analysis.standing import HINT, ROUNDS, divergence
from fedquilt.cli import app as cli
from fedquilt.data.data import Data
from fedquilt.partition.partition import Partition

SPEC = """
[run]
rounds = 6
[data]
name = "digits"
[partition]
name = "iid"
clients = 10
[model]
name = "mnist_2nn"
inputs = 64
[method]
name = "fed_avg"
lr = 1e6
fraction = 0.5
[engine]
name = "inline"
"""

Command = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
GOES_ON = pytest.mark.filterwarnings("default:most clients' updates:RuntimeWarning")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command line in a folder that holds spec.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    Path("spec.toml").write_text(SPEC)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedquilt", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return call


WHY = f"most clients' updates in rounds 1 to {ROUNDS} were unusable: NaN, infinite or too large"


def test_a_run_that_diverges_stops_and_everybody_says_so(command: Command) -> None:
    code, out, err = command("run", "spec.toml", "--out", "run")
    assert code == 1
    assert f"Ended after {ROUNDS} rounds" in out
    assert "Finished" not in out
    assert err.splitlines()[-1] == f"error: the run diverged: {WHY}. {HINT}."
    about = fedquilt.summary("run")
    assert (about["state"], about["round"], about["saved_round"], about["diverged"]) == (
        "diverged",
        ROUNDS,
        ROUNDS,
        WHY,
    )
    assert "diverged" in command("show", "run")[1].split("rounds")[0]
    code, out, err = command("resume", "run")
    assert code == 1
    assert out.startswith("The run had diverged already")
    assert err == f"error: the run diverged: {WHY}. {HINT}.\n"
    assert fedquilt.summary("run") == about
    assert command("resume", "run", "--rounds", "20")[0] == 1
    assert fedquilt.summary("run")["round"] == ROUNDS
    code, out, _ = command("report", "run", "--out", "report")
    assert code == 0
    assert "│ diverged │" in out
    assert "| diverged |" in Path("report/tables/runs.md").read_text()


@GOES_ON
def test_a_run_may_go_on_all_the_same(command: Command) -> None:
    code, out, err = command("run", "spec.toml", "--set", "run.on_divergence=go_on", "--out", "run")
    assert code == 1
    assert "Ended after 6 rounds" in out
    assert err.count("the run has diverged, and continues, as") == 1
    assert fedquilt.summary("run")["state"] == "diverged"
    code, _, err = command("run", "spec.toml", "--set", "run.on_divergence=on")
    assert code == 2
    assert "[run] on_divergence: must be one of 'stop' or 'go_on', got 'on'" in err


def test_a_run_shorter_than_the_rule_is_judged_at_its_end(command: Command) -> None:
    code, _, err = command("run", "spec.toml", "--set", "run.rounds=1", "--out", "run")
    assert code == 1
    assert "most clients' updates in 1 of 1 rounds" in err
    assert fedquilt.summary("run")["state"] == "diverged"


@pytest.mark.parametrize("engine", ["processes", "vectorised"])
def test_engines_agree(command: Command, engine: str) -> None:
    for name in ("inline", engine):
        assert command("run", "spec.toml", "--set", f"engine.name={name}", "--out", name)[0] == 1
    one, other = fedquilt.summary("inline"), fedquilt.summary(engine)
    assert [one[key] for key in ("state", "round", "diverged", "digest")] == [
        other[key] for key in ("state", "round", "diverged", "digest")
    ]


def test_an_interrupted_run_diverges_where_it_would_have(command: Command) -> None:
    class Stop(fedquilt.Watcher):
        def begin(self, history: History, last: int) -> None: ...

        def heard(self, clients: int, total: int) -> None: ...

        def round(self, record: dict[str, Any]) -> None:
            if record["round"] == ROUNDS - 1:
                raise KeyboardInterrupt

    stopped = fedquilt.run("spec.toml", out="run", watcher=Stop())
    assert stopped.result.interrupted
    assert stopped.result.diverged is None
    assert fedquilt.summary("run")["state"] == "interrupted"
    assert fedquilt.resume("run").result.diverged == WHY


def test_a_sweep_goes_on_with_its_other_trials(command: Command) -> None:
    Path("spec.toml").write_text(SPEC + '[grid]\n"method.lr" = [1e6, 0.1]\n')
    code, out, err = command("sweep", "spec.toml", "--out", "grid")
    assert code == 0
    assert f"warning: lr=1e+06 diverged: {WHY} (see grid/lr=1e+06/log.txt)\n" in err
    assert "lr=0.1: finished after" in out
    before = Path("grid/lr=1e+06/metrics.jsonl").stat().st_mtime_ns
    assert command("sweep", "spec.toml", "--out", "grid")[0] == 0
    assert Path("grid/lr=1e+06/metrics.jsonl").stat().st_mtime_ns == before  # it is not run again
    code, _, err = command("sweep", "spec.toml", "--out", "grid", "--only", "1e+06")
    assert code == 1
    assert err.splitlines()[-1] == f"error: every trial diverged. {HINT}."


class OverflowsInEvaluation(nn.Module):
    """Trains as any other, and returns infinities when it is evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x)
        return scores if self.training else scores * torch.inf


def test_a_model_that_overflows_only_in_evaluation(blobs: Data, unbalanced: Partition) -> None:
    torch.manual_seed(0)
    arguments = (OverflowsInEvaluation(), blobs, unbalanced, fedquilt.fed_avg(), 6)
    with pytest.warns(RuntimeWarning, match=r"the run diverged: the test loss after round 2 is not finite\. Use"):
        result = fedquilt.train(*arguments, engine=fedquilt.inline(), eval_every=2)
    assert result.diverged == "the test loss after round 2 is not finite"
    assert len(result.history) == 2
    assert "diverged" in repr(result)


# The rule


def lost(number: int, unusable: int, heard: int) -> dict[str, Any]:
    dropped = [{"client": client, "reason": "sent NaN", "kind": "overflow"} for client in range(unusable)]
    return {"round": number, "dropped": dropped, "clients": list(range(heard))}


@pytest.mark.parametrize(
    ("rounds", "last", "diverged"),
    [
        ([], 10, False),
        ([(2, 1)] * 2, 10, False),
        ([(2, 1)] * 3, 10, True),
        ([(1, 1)] * 3, 10, False),
        ([(2, 1), (0, 3), (2, 1), (2, 1)], 10, False),
        ([(2, 1), (0, 3), (2, 1), (2, 1)], 4, True),
        ([(2, 1), (0, 3), (2, 1), (0, 3)], 4, False),
        ([(2, 1), (0, 3), (2, 1), (2, 1), (2, 1)], 10, True),
        ([(0, 0)] * 5, 5, False),
    ],
)
def test_rule(rounds: list[tuple[int, int]], last: int, diverged: bool) -> None:
    history = History([lost(number, *counts) for number, counts in enumerate(rounds, start=1)])
    assert (divergence(history, last) is not None) == diverged


@pytest.mark.parametrize(("unchanged", "changed", "fails"), [(3, 2, True), (2, 2, False), (1, 0, True)])
def test_rounds_that_change_nothing_for_whatever_reason(unchanged: int, changed: int, fails: bool) -> None:
    entry = {"client": 3, "reason": "ValueError: a batch of one", "kind": "error"}
    records = [{"dropped": [entry], "clients": [], "applied": False}] * unchanged
    records += [{"dropped": [], "clients": [1], "applied": True}] * changed
    history = History([{"round": number} | record for number, record in enumerate(records, start=1)])
    assert divergence(history, 99) is None
    assert (divergence(history, len(records)) is not None) == fails
    absent = [record | {"dropped": [], "absent": [entry]} for record in history.records]
    assert divergence(History(absent), len(records)) is None


def test_a_run_all_of_whose_clients_fail_is_no_success(command: Command) -> None:
    Path("bad.py").write_text(
        "import torch\n\ndef loss(outputs, targets):\n    if outputs.requires_grad and len(outputs) > 2:\n"
        "        raise ValueError('no')\n    return torch.nn.functional.cross_entropy(outputs, targets, reduction='none')\n"
    )
    code, out, err = command("run", "spec.toml", "--set", "method.lr=0.1", "--set", "run.loss=bad:loss", "--out", "run")
    assert code == 1
    assert "Finished" not in out
    assert "error: the run failed: 6 of 6 rounds changed nothing, since all of their clients were left out" in err
    assert fedquilt.summary("run")["state"] == "diverged"


def test_other_faults_are_no_divergence() -> None:
    record = lost(1, 3, 0)
    for entry in record["dropped"]:
        entry["kind"] = "error"
    assert divergence(History([record]), 1) is None
