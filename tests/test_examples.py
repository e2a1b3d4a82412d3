"""Every example runs and learns."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fedquilt as fq

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str, run_name: str = "__main__") -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=run_name)


def test_own_model_learns() -> None:
    result = example("own_model")["result"]
    assert result.history.accuracy[-1] > 0.8
    assert not any(record["dropped"] for record in result.history)


def test_own_model_takes_fifteen_lines() -> None:
    text = (EXAMPLES / "own_model.py").read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 15
    assert ";" not in re.sub(r'"[^"]*"', "", text)


def test_own_method_learns_the_more_the_less_it_clips(capsys: pytest.CaptureFixture[str]) -> None:
    example("own_method")
    accuracies = [float(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines()]
    assert len(accuracies) == 3
    assert accuracies == sorted(accuracies)
    assert accuracies[-1] > 0.8


def test_own_method_clips() -> None:
    clip = example("own_method", run_name="example")["clip_by_norm"](1.0)
    # ‖(3, 4)‖ = 5, over both tensors
    update, _ = clip.update({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, {}, None)
    torch.testing.assert_close(update, {"a": torch.tensor([0.6]), "b": torch.tensor([0.8])})
    still, _ = clip.update({"a": torch.zeros(2)}, {}, None)
    assert still["a"].tolist() == [0.0, 0.0]


def test_own_method_without_a_limit_is_the_method_it_is_made_from() -> None:
    make = example("own_method", run_name="example")["clipped_fed_avg_m"]
    data = fq.digits()
    clients = fq.iid(data.train.y.numpy(), clients=10)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    digests = [
        fq.train(model, data, clients, method, rounds=2, engine=fq.inline()).digest
        for method in (make(limit=1e9, fraction=0.3), fq.fed_avg_m(fraction=0.3))
    ]
    assert digests[0] == digests[1]


def test_own_method_runs_from_a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = {
        "run": {"rounds": 2, "import_from": str(EXAMPLES)},
        "data": {"name": "digits"},
        "partition": {"name": "iid", "clients": 10},
        "model": {"name": "softmax_regression", "inputs": 64},
        "method": {"name": "own_method:clipped_fed_avg_m", "limit": 0.5, "fraction": 0.5},
        "engine": {"name": "inline"},
    }
    ended = fq.run(spec, out=tmp_path / "run")
    assert len(ended.result.history) == 2
    assert fq.resume(tmp_path / "run", rounds=3).result.history.records[-1]["round"] == 3


def test_compare_methods_shows_that_momentum_helps(capsys: pytest.CaptureFixture[str]) -> None:
    example("compare_methods")
    best = {}
    for line in capsys.readouterr().out.splitlines():
        match = re.match(r"(.+?) +best ([\d.]+)%, 85% (never|after [\d.]+ rounds)$", line)
        assert match is not None, line
        best[match[1]] = float(match[2])
    assert best["pooled data"] > best["FedAvgM"] > best["FedAvg"]


def test_unequal_sizes_deals_out_everything_once() -> None:
    labels = fq.digits().train.y.numpy()
    held = example("unequal_sizes", run_name="imported")["unequal"](labels, clients=20, spread=1.5, seed=1)
    assert sorted(held.indices.tolist()) == list(range(len(labels)))
    assert held.sizes.max() > 10 * held.sizes.min() > 0
