"""The tables of docs/scaling.md are what bench/results/ray.json says."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def scaling(monkeypatch):
    spec = importlib.util.spec_from_file_location("scaling", BENCH / "scaling.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "scaling", module)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_results(scaling):
    text = scaling.PAGE.read_text()
    assert scaling.written(text, json.loads(scaling.RESULTS.read_text())) == text


def test_goals_are_held_against_what_was_measured(scaling):
    at = {"command": "c", "commit": "1", "when": "today", "machine": "m"}
    row = {"at": at, "about": "a 2NN", "processes": 1.0, "ray": 1.15, "ratio": 1.15, "daemons": 0.1}
    assert "| W1: a 2NN | 1.000 s | 1.150 s | 1.150 | 1.15, reached | 0.100 s |" in scaling.beside({"w1": row})
    text = scaling.beside({"w1": row | {"ratio": 1.16}, "w6": row})
    assert "| 1.160 | 1.15, **not reached** |" in text
    assert "| W2 | not measured yet | | | 1.05 | |" in text
    assert "- w1, w6: `c`, commit 1, today; m" in text


def test_a_driver_that_costs_nothing_never_saturates_and_a_busy_one_does(scaling):
    work = scaling.Work(200_000, 0.05, 20)
    free, dear = scaling.Costs(0.0, 0.0, 0.0, 0.0), scaling.Costs(0.1, 0.0, 0.0, 0.0)
    alone = scaling.flat(work, free, 16, network=float("inf"))
    assert 0.7 < alone.efficiency <= 1.25
    assert scaling.flat(work, dear, 160).busy > 0.99
    assert scaling.saturation(work, dear) < 10 / scaling.TASKS
