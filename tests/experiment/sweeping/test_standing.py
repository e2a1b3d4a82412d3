"""What a trial's folder holds: this trial, or a run that something else decided the bits of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.engines.execution import Execution
from fedquilt.experiment.changes import change
from fedquilt.experiment.spec import check_spec
from fedquilt.experiment.sweeping import jobs as jobs_module
from fedquilt.experiment.sweeping.jobs import jobs_for
from fedquilt.experiment.sweeping.standing import standing

TABLES: dict[str, Any] = {
    "run": {"rounds": 3},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 5},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "fraction": 1.0},
    "engine": {"name": "inline"},
}


def spec(*sets: str) -> Any:
    return check_spec(change({name: dict(table) for name, table in TABLES.items()}, sets))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedquilt.run(TABLES, out=tmp_path_factory.mktemp("runs") / "run").folder


@pytest.mark.parametrize(
    ("sets", "kind", "why"),
    [
        ([], "finished", ""),
        (["engine.name=processes", "engine.workers=1", "run.checkpoint_seconds=1"], "finished", ""),
        (["run.rounds=4"], "shorter", ""),
        (["run.patience=50"], "shorter", ""),
        (["run.rounds=2"], "other", "it has 3 rounds, and is to have 2 now"),
        (["run.stop_at=0.01"], "other", "it would have stopped after round 1: test accuracy reached 1.00%"),
        (["method.momentum=0.5"], "other", "[method] momentum was 0.0, and is 0.5 now"),
        (
            ["engine.name=vectorised"],
            "other",
            "[engine] where was 'cpu, float32', and is 'cpu, float32, blocks of 16' now",
        ),
        (["engine.precision=bf16"], "other", "[engine] where was 'cpu, float32', and is 'cpu, bf16' now"),
        (["engine.compute=compiled"], "other", "[engine] compute was 'eager', and is 'compiled' now"),
        (["engine.compute=auto"], "unknown", ""),
    ],
)
def test_what_decides_the_bits(finished: Path, sets: list[str], kind: str, why: str) -> None:
    found = standing(finished, spec(*sets), thorough=False)
    assert (found.kind, found.why) == (kind, why)


@pytest.mark.parametrize(
    ("engine", "kind", "why"),
    [
        ({}, "finished", ""),
        ({"name": "auto", "workers": 1, "compute": "eager"}, "finished", ""),
        ({"name": "auto", "compute": "compiled"}, "other", "[engine] compute was 'eager', and is 'compiled' now"),
        ({"name": "auto", "precision": "bf16"}, "other", "[engine] where was 'cpu, float32', and is 'cpu, bf16' now"),
    ],
)
def test_what_is_asked_for_counts_where_the_rest_is_left_open(
    finished: Path, engine: dict[str, Any], kind: str, why: str
) -> None:
    found = standing(finished, check_spec(TABLES | {"engine": engine}), thorough=False)
    assert (found.kind, found.why) == (kind, why)


def test_a_run_of_another_precision_is_another_run(tmp_path: Path) -> None:
    """Nothing said of the engine is float32."""
    coarse = fedquilt.run(TABLES | {"engine": {"name": "inline", "precision": "bf16"}}, out=tmp_path / "run").folder
    plain = check_spec({name: table for name, table in TABLES.items() if name != "engine"})
    assert standing(coarse, plain, thorough=False).why == "[engine] where was 'cpu, bf16', and is 'cpu, float32' now"


@pytest.mark.parametrize(
    ("now", "kind", "why"),
    [("eager", "finished", ""), ("fused", "other", "[engine] compute was 'eager', and is 'fused' now")],
)
def test_what_auto_decides_is_decided_again(
    finished: Path, monkeypatch: pytest.MonkeyPatch, now: str, kind: str, why: str
) -> None:
    """A run that was eager by request is another one where `auto` takes a kernel."""
    monkeypatch.setattr(Execution, "decided", lambda *given: (now, "so it is here"))
    found = standing(finished, spec("engine.compute=auto"), thorough=True)
    assert (found.kind, found.why) == (kind, why)


def test_nothing_is_there(tmp_path: Path) -> None:
    assert standing(tmp_path / "none", spec(), thorough=False).kind == "nothing"


@pytest.mark.parametrize(
    ("sets", "trials", "asked", "jobs"),
    [
        ([], 12, None, (4, 1)),
        ([], 2, None, (2, 2)),
        ([], 12, 3, (3, 1)),
        ([], 12, 8, (8, 1)),
        (["engine.workers=2"], 12, None, (2, 2)),
        (["engine.device=cuda"], 12, None, (1, 4)),
    ],
)
def test_how_many_at_once(
    monkeypatch: pytest.MonkeyPatch, sets: list[str], trials: int, asked: int | None, jobs: tuple[int, int]
) -> None:
    monkeypatch.setattr(jobs_module, "cores", lambda: 4)
    found = jobs_for([spec("engine.name=processes", *sets)] * trials, asked)
    assert (found.number, found.workers) == jobs


def test_one_worker_is_the_trials_own_process() -> None:
    jobs = jobs_for([spec("engine.name=processes")] * 99)
    engines = {
        name: jobs.fitted(spec(*sets), apart).parts["engine"]
        for name, (sets, apart) in {
            "plain": (["engine.name=processes"], False),
            "apart": (["engine.name=processes"], True),
            "timed": (["engine.name=processes", "run.client_seconds=9"], False),
            "blocks": (["engine.name=vectorised"], False),
            "said": (["engine.name=processes", "engine.workers=3"], False),
        }.items()
    }
    assert {name: (part.name, part.arguments.get("workers")) for name, part in engines.items()} == {
        "plain": ("inline", None),
        "apart": ("processes", 1),
        "timed": ("processes", 1),
        "blocks": ("vectorised", 1),
        "said": ("processes", 3),
    }
