"""Devices and precision: what is computed where, and how near bfloat16 comes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import fedquilt
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.compute.device import Placement
from fedquilt.round.federation import Federation
from fedquilt.round.local_step import local_step
from fedquilt.round.views import placed

ELSEWHERE = Placement("meta")  # type: ignore[arg-type]
"""torch's device without values: what is computed there needs all its tensors there, as on a GPU."""

EVERYTHING = fedquilt.fed_ir(
    fedquilt.scaffold(
        fedquilt.gradient_noise(
            fedquilt.projected(fedquilt.fed_avg(fraction=1.0, batch=8, weight_decay=0.01), 3.0), 0.1
        )
    )
)


@pytest.fixture
def steps(monkeypatch):
    """The devices of all tensors that go into a local step, and come out of it."""
    seen = []

    def watched(recipe, carried, batch, at):
        after = local_step(recipe, carried, batch, at)
        inside = (carried, batch, at.params, at.start, at.rates, at.normals, dict(at.given), after)
        seen.append({leaf.device.type for leaf in tree_leaves(inside) if _tensor(leaf)})
        return after

    monkeypatch.setattr("fedquilt.round.training.local_step", watched)
    monkeypatch.setattr("fedquilt.round.block.local_step", watched)
    return seen


def _tensor(leaf):
    return isinstance(leaf, torch.Tensor)


def _federation(data, held, module):
    federation = placed(Federation.of(module, data, held, EVERYTHING, 1), ELSEWHERE)
    return federation, federation.start().groups[0].state


def test_a_step_elsewhere_touches_nothing_here(blobs, unbalanced, smooth, steps):
    federation, state = _federation(blobs, unbalanced, smooth)
    fault = federation.site.run_client(state, 1, 0, 0, None)
    assert "meta tensor" in fault.reason  # which means that only fetching the values is left
    assert len(steps) == len(EVERYTHING.sample(len(unbalanced.client(0)), np.random.default_rng(0)).cuts) - 1
    assert all(devices == {"meta"} for devices in steps)


def test_a_block_elsewhere_touches_nothing_here(blobs, unbalanced, smooth, steps):
    federation, state = _federation(blobs, unbalanced, smooth)
    program = fedquilt.vectorised(block=3, workers=1).execution.program(federation)
    with pytest.raises(NotImplementedError, match="meta tensor"):
        federation.site.train_block(program, state, 1, [(0, 0, None), (1, 1, None)])
    assert steps
    assert all(devices == {"meta"} for devices in steps)


def test_an_evaluation_elsewhere_runs_there_to_its_end(blobs, unbalanced, smooth):
    federation = placed(Federation.of(smooth, blobs, unbalanced, fedquilt.fed_avg(), 1), ELSEWHERE)
    with pytest.raises(NotImplementedError, match="meta tensor"):
        federation.evaluator.evaluate(federation.initial, "test", (0, 10))
    assert {p.device.type for p in federation.replica.module.parameters()} == {"meta"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device here")
def test_a_device_that_is_not_here_is_refused(blobs, unbalanced, smooth):
    for engine in (fedquilt.inline(device="cuda"), fedquilt.processes(device="cuda")):
        with pytest.raises(FedquiltError, match=r'device = "cuda": torch .* finds none here; use device = "cpu"'):
            fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), 1, engine=engine)


def test_a_forked_worker_is_refused_a_device():
    with pytest.raises(SpecError, match='a forked process cannot use device = "cuda"; use "spawn"'):
        fedquilt.processes(start="fork", device="cuda")
    engine = fedquilt.processes(device="cuda")
    assert (engine.workers, engine.start) == (1, "spawn")


def _trained(module, data, held, engine):
    return fedquilt.train(module, data, held, fedquilt.fed_avg(fraction=1.0, batch=8), 3, engine=engine)


def test_bfloat16_is_near_and_the_same_bits_over_workers(blobs, unbalanced, smooth):
    exact = _trained(smooth, blobs, unbalanced, fedquilt.inline()).state.vector
    runs = [
        _trained(smooth, blobs, unbalanced, engine)
        for engine in (
            fedquilt.inline(precision="bf16"),
            fedquilt.processes(workers=1, precision="bf16"),
            fedquilt.processes(workers=2, precision="bf16"),
        )
    ]
    assert len({run.digest for run in runs}) == 1
    lowered = runs[0].state.vector
    assert lowered.dtype == torch.float32
    assert 1e-7 < (exact - lowered).abs().max() < 0.05
    mapped = _trained(smooth, blobs, unbalanced, fedquilt.vectorised(block=3, workers=1, precision="bf16"))
    assert (mapped.state.vector - lowered).abs().max() < 0.02


class Gathers(nn.Module):
    """Adds what a layer returns to numbers in float32: torch does not do that in bfloat16, on whatever processor."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        return torch.zeros(len(x), 3).index_add(0, torch.arange(len(x)), self.linear(x))


@pytest.mark.parametrize(
    "engine", [fedquilt.inline, fedquilt.processes, fedquilt.vectorised], ids=lambda engine: engine.__name__
)
def test_a_model_that_cannot_be_trained_in_bfloat16_is_refused_before_the_first_round(blobs, unbalanced, engine):
    class Watcher:
        begin = heard = round = pytest.fail

    method, lowered = fedquilt.fed_avg(), engine(precision="bf16")
    refusal = r'precision = "bf16": .*index_add_.*; use precision = "float32"'
    with pytest.raises(SpecError, match=refusal):
        fedquilt.train(Gathers(), blobs, unbalanced, method, 1, engine=lowered, watcher=Watcher())
    federation = Federation.of(Gathers(), blobs, unbalanced, method, 1)
    with pytest.raises(SpecError, match=refusal), lowered.open(federation):  # as a run that is resumed here does
        pytest.fail("a session was opened")
    assert fedquilt.train(Gathers(), blobs, unbalanced, method, 1, engine=engine()).history.records[0]["dropped"] == []


def test_a_model_that_cannot_be_trained_at_all_is_not_blamed_on_the_precision(blobs, unbalanced):
    class Broken(nn.Linear):
        def forward(self, x):
            if self.training:
                raise ValueError("not today")
            return super().forward(x)

    with pytest.warns(RuntimeWarning, match="not today"):
        fedquilt.train(Broken(8, 3), blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.inline(precision="bf16"))


SPEC = """
[run]
rounds = 2
[data]
name = "posts"
path = "posts.jsonl"
vocabulary = 9
[partition]
name = "natural"
[model]
name = "word_lstm"
vocabulary = 9
embedding = 4
hidden = 8
[method]
name = "fed_avg"
[engine]
name = "processes"
precision = "bf16"
"""


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="ONEDNN_MAX_CPU_ISA is about x86")
def test_the_command_line_refuses_an_lstm_in_bfloat16_where_the_processor_has_none(tmp_path):
    """An LSTM in bfloat16 needs AVX-512 in oneDNN; the run is refused before it begins, and leaves no folder."""
    posts = [{"author": f"author {number % 4}", "text": "one two three four five six seven"} for number in range(40)]
    (tmp_path / "posts.jsonl").write_text("\n".join(json.dumps(post) for post in posts))
    (tmp_path / "spec.toml").write_text(SPEC)
    command = [sys.executable, "-m", "fedquilt", "run", "spec.toml", "--out", "run"]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2, said
    assert 'precision = "bf16": this model cannot be trained in it here: RuntimeError: could not create a prim' in said
    assert said.endswith('use precision = "float32"')
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_gone_on_with_in_another_precision(blobs, unbalanced, smooth, tmp_path):
    method = fedquilt.fed_avg()
    fedquilt.train(smooth, blobs, unbalanced, method, 1, engine=fedquilt.inline(precision="bf16"), out=tmp_path / "run")
    with pytest.raises(fedquilt.base.errors.RunError, match="started with cpu, bf16, but this is cpu, float32"):
        fedquilt.train(smooth, blobs, unbalanced, method, 2, engine=fedquilt.inline(), out=tmp_path / "run")


def test_what_the_server_trains_is_lowered_too(blobs, unbalanced, smooth):
    method = fedquilt.server_training(fedquilt.fed_avg(fraction=1.0, lr=1e-30), share=0.2, lr=0.1)
    exact, lowered = (
        fedquilt.train(smooth, blobs, unbalanced, method, 1, engine=fedquilt.inline(precision=precision)).state.vector
        for precision in ("float32", "bf16")
    )
    assert not torch.equal(exact, lowered)


def test_dropout_reads_the_generator_that_is_seeded(blobs, unbalanced):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    first, second = (_trained(module, blobs, unbalanced, fedquilt.inline(precision="bf16")).digest for _ in range(2))
    assert first == second
