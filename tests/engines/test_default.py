"""The engine of a run that names none: chosen by a rule, once, and kept."""

from __future__ import annotations

import tomllib

import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.base.cores import cores
from fedquilt.base.errors import RunError
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.stack import KERNEL
from fedquilt.engines.default import AutoEngine, auto, chosen, in_words
from fedquilt.engines.execution import Execution
from fedquilt.engines.processes import ProcessEngine
from fedquilt.experiment.spec import check_spec
from fedquilt.experiment.sweeping.jobs import Jobs
from fedquilt.experiment.watching import Watcher
from fedquilt.round.federation import Federation

needs_compiler = pytest.mark.skipif(build.trouble(KERNEL) is not None, reason="nothing can be compiled here")

TABLES = {
    "run": {"rounds": 3},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 10},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg", "fraction": 1.0},
}


class Stages(Watcher):
    def __init__(self):
        self.said = []

    def stage(self, text):
        self.said.append(text)


def eagerly(*given):
    """What a rule would say that decides otherwise."""
    return "eager", "another rule"


def made(blobs, held, module, method=None, seconds=None):
    return Federation.of(module, blobs, held, method or fedquilt.fed_avg(fraction=1.0), 1, client_seconds=seconds)


@needs_compiler
@pytest.mark.parametrize("cached", [True, False])
def test_a_stack_of_linear_layers_is_fused_however_short_the_run(blobs, unbalanced, monkeypatch, cached):
    monkeypatch.setattr(build, "to_be_compiled", lambda name: not cached)
    federation = made(blobs, unbalanced, nn.Linear(8, 3))
    assert chosen(auto(), federation, 1)[0] == chosen(auto(), federation, 10**6)[0]
    assert chosen(auto(), federation, 1)[0].compute == "fused"


def test_a_run_is_eager_where_kernels_cannot_be_had(blobs, unbalanced, monkeypatch):
    monkeypatch.setattr(build, "trouble", lambda *names: "no C++ compiler")
    engine, why = chosen(auto(), made(blobs, unbalanced, nn.Linear(8, 3)), 10)
    assert (engine.compute, why) == ("eager", "no C++ compiler")


@needs_compiler
def test_blocks_and_workers(blobs, unbalanced):
    federation = made(blobs, unbalanced, nn.Linear(8, 3))
    engine, why = chosen(auto(), federation, 10**6)
    assert isinstance(engine, ProcessEngine)
    assert engine.workers == min(cores(), 6)
    assert engine.execution.block == -(-6 // min(cores(), 6))
    assert in_words(engine, why).endswith("at once, fused (a kernel takes all steps of a client)")
    assert chosen(auto(inline=True), federation, 10**6)[0] == fedquilt.inline("fused", block=engine.execution.block)
    assert chosen(auto(workers=1, start="spawn"), federation, 10**6)[0].workers == 1
    assert chosen(auto(workers=20), federation, 10**6)[0].workers == 6
    timed = made(blobs, unbalanced, nn.Linear(8, 3), seconds=5.0)
    assert chosen(auto(), timed, 10**6)[0].execution.block == 1


def test_what_cannot_be_fused_is_said(blobs, unbalanced, smooth):
    engine, why = chosen(auto(), made(blobs, unbalanced, smooth), 10)
    assert (engine.compute, engine.execution.block) == ("eager", 1)
    assert why == "not fused: the model is not a stack of linear layers with ReLU or cosine features between them"
    stopping = made(blobs, unbalanced, nn.Linear(8, 3), fedquilt.one_shot())
    assert chosen(auto(), stopping, 10)[1] == "not fused: one_shot stops each client when it has converged"
    assert chosen(auto(compute="eager"), stopping, 10)[1] == "as asked"


@needs_compiler
def test_it_is_shown_and_written_and_not_chosen_again(tmp_path, monkeypatch):
    watcher = Stages()
    ended = fedquilt.run(TABLES, out=tmp_path / "run", watcher=watcher)
    said = [text for text in watcher.said if text.startswith("engine: ")]
    assert len(said) == 1
    assert said[0].endswith("fused (a kernel takes all steps of a client)")
    written = tomllib.loads((ended.folder / "spec.toml").read_text())["engine"]
    assert (written["name"], written["compute"]) == ("vectorised" if "block" in written else "processes", "fused")
    assert written["workers"] == min(cores(), 10)
    monkeypatch.setattr(Execution, "decided", eagerly)
    more = fedquilt.resume(tmp_path / "run", rounds=5, watcher=(again := Stages()))
    assert [text for text in again.said if text.startswith("engine: ")] == [
        said[0].replace("a kernel takes all steps of a client", "as before")
    ]
    assert tomllib.loads((ended.folder / "spec.toml").read_text())["engine"] == written
    alone = fedquilt.run(TABLES, ["run.rounds=5", "engine.name=inline", "engine.compute=fused"], out=tmp_path / "alone")
    assert more.result.digest == alone.result.digest
    assert fedquilt.run(TABLES, ["run.rounds=5"], out=tmp_path / "eager").result.digest != alone.result.digest


@needs_compiler
def test_a_run_that_goes_on_does_not_choose_again_when_asked_to(tmp_path):
    eager = ["engine.name=inline", "engine.compute=eager"]
    fedquilt.run(TABLES, eager, out=tmp_path / "run")
    more = fedquilt.resume(tmp_path / "run", rounds=5, sets=["engine.compute=auto"])
    assert more.result.digest == fedquilt.run(TABLES, [*eager, "run.rounds=5"], out=tmp_path / "whole").result.digest
    assert tomllib.loads((tmp_path / "run" / "spec.toml").read_text())["engine"]["compute"] == "eager"


@needs_compiler
def test_a_run_goes_on_as_it_was_computed(tmp_path):
    begun = fedquilt.run(TABLES, out=tmp_path / "run")
    spec = (begun.folder / "spec.toml").read_text()
    for change in ("engine.compute=eager", "engine.precision=bf16"):
        with pytest.raises(RunError, match=r"its rounds so far were computed fused \(cpu, float32\), and would be "):
            fedquilt.resume(begun.folder, rounds=5, sets=[change])
    assert (begun.folder / "spec.toml").read_text() == spec
    more = fedquilt.resume(begun.folder, rounds=5, sets=["engine.name=inline"])
    assert more.result.digest == fedquilt.run(TABLES, ["run.rounds=5"], out=tmp_path / "whole").result.digest


@needs_compiler
def test_a_run_from_python_keeps_it_too(blobs, unbalanced, tmp_path, monkeypatch):
    torch.manual_seed(0)
    module, method = nn.Linear(8, 3), fedquilt.fed_avg(fraction=1.0)

    def go(rounds, out, **options):
        return fedquilt.train(module, blobs, unbalanced, method, rounds, out=tmp_path / out, **options)

    go(2, "run", watcher=(watcher := Stages()))
    assert sum(text.startswith("engine: ") for text in watcher.said) == 1
    monkeypatch.setattr(Execution, "decided", eagerly)
    assert go(4, "run").digest == go(4, "whole", engine=fedquilt.inline("fused")).digest


def test_a_trial_with_one_core_has_no_worker_of_its_own():
    spec = check_spec(TABLES)
    fitted = Jobs(2, 1).fitted(spec, apart=False).parts["engine"]
    engine = fitted.function(**fitted.arguments)
    assert isinstance(engine, AutoEngine)
    assert not isinstance(engine.keeping(engine.execution), ProcessEngine)
    apart = Jobs(2, 1).fitted(spec, apart=True).parts["engine"]
    engine = apart.function(**apart.arguments)
    assert engine.keeping(engine.execution).workers == 1
    timed = check_spec(TABLES | {"run": {"rounds": 3, "client_seconds": 9.0}})
    part = Jobs(2, 1).fitted(timed, apart=False).parts["engine"]
    engine = part.function(**part.arguments)
    assert engine.keeping(engine.execution).workers == 1


def test_another_device_has_one_worker():
    assert auto(device="cuda").keeping(auto(device="cuda").execution).workers == 1
