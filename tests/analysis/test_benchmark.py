"""The benchmark's results in the package: which clients are most similar, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedquilt
from fedquilt.analysis.advice import advice
from fedquilt.analysis.benchmark import MethodResult, Trials, most_similar
from fedquilt.analysis.skew import skew
from fedquilt.base import registry

TEN = np.repeat(np.arange(10), 400)


@pytest.mark.parametrize(
    ("emd", "equal_sizes", "setting"),
    [
        (0.0, True, "IID"),
        (1.0, True, "Dirichlet 1"),
        (1.55, True, "shards"),
        (2.0, True, "Dirichlet 0.1"),
        (0.0, False, "power law"),
        (2.0, False, "power law"),
    ],
)
def test_the_nearest_clients_are_taken(emd: float, equal_sizes: bool, setting: str) -> None:
    found = {trials.title: trials.setting for trials in most_similar(emd, equal_sizes)}
    assert next(name for title, name in found.items() if "MNIST" in title) == setting


def test_methods_are_in_order_and_exist() -> None:
    for emd in (0.0, 1.0, 1.6, 2.0):
        for trials in most_similar(emd, equal_sizes=True):
            means = [method.mean for method in trials.methods]
            assert means == sorted(means, reverse=True)
            assert trials.methods[0].not_worse
            for method in trials.methods:
                assert all(part in registry.methods or part in registry.wrappers for part in method.parts)
                assert 0 < method.mean < 1


def test_nothing_that_happens_to_clients_is_taken_for_a_population() -> None:
    settings = {each.setting for equal in (True, False) for emd in (0, 1, 2) for each in most_similar(emd, equal)}
    assert not settings & {"20% dropout", "10% corrupt"}


def test_advice_cites_the_cells_that_it_is_from() -> None:
    held = fedquilt.shards(TEN, clients=100, shards=2)
    measured = skew(held, TEN)
    (line,) = [line for line in advice(measured) if "MNIST" in line.source]
    (trials,) = [each for each in most_similar(measured.summary()["emd"], True) if "MNIST" in each.title]
    assert trials.setting == "shards"
    assert line.methods[0] == trials.methods[0].parts[0]
    assert f"{trials.methods[0]}" in line.source
    plain = next(method for method in trials.methods if method.name == "FedAvg")
    assert f"{plain}" in line.source
    assert trials.title in line.source


def test_what_is_not_significantly_worse_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MethodResult("FedAvg", ("fed_avg",), 0.9, 0.01, not_worse=True)
    first = MethodResult("FedAvgM", ("fed_avg_m",), 0.95, 0.02, not_worse=True)
    near = [
        MethodResult(name, (f"fed_{name.lower()}",), 0.94, 0.01, not_worse=True) for name in ("Dyn", "Adam", "Yogi")
    ]
    worse = MethodResult("median", ("median",), 0.92, 0.01, not_worse=False)
    found = [
        Trials("T", "IID", 0.1, True, (first, *near, worse, plain)),
        Trials("U", "IID", 0.1, True, (plain, first)),
        Trials("V", "IID", 0.1, True, (first, worse, replace(plain, not_worse=False))),
    ]
    monkeypatch.setattr("fedquilt.analysis.advice.most_similar", lambda emd, equal_sizes: found)
    held = fedquilt.iid(TEN, clients=10)
    many, itself, one = [line for line in advice(skew(held, TEN)) if "benchmark" in line.source]
    assert many.methods == ("fed_avg_m", "fed_dyn", "fed_adam")
    assert many.source.endswith(
        "FedAvgM 95.00 ± 2.00%; not significantly worse: Dyn 94.00 ± 1.00% and Adam 94.00 ± 1.00%; "
        "FedAvg 90.00 ± 1.00% (not significantly worse)"
    )
    assert itself.source.endswith("FedAvg 90.00 ± 1.00%; not significantly worse: FedAvgM 95.00 ± 2.00%")
    assert one.methods == ("fed_avg_m",)
    assert one.source.endswith("FedAvgM 95.00 ± 2.00%; FedAvg 90.00 ± 1.00%")
