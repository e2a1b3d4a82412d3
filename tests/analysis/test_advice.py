"""Advice: each line where it belongs, and methods that exist."""

from __future__ import annotations

import numpy as np
import pytest

import fedquilt
from fedquilt.analysis.advice import advice
from fedquilt.analysis.skew import skew
from fedquilt.base import registry
from fedquilt.base.arguments import takes

TEN = np.repeat(np.arange(10), 300)
MANY = np.repeat(np.arange(100), 50)

CASES = {
    "alike": (fedquilt.stratified(TEN, clients=20), TEN, ["fed_avg"]),
    "one class each": (fedquilt.class_blocks(TEN, clients=20, classes=1), TEN, ["fed_avg_m", "fed_ir", "fed_avg_r"]),
    "two clients": (
        fedquilt.class_blocks(TEN, clients=2, classes=5),
        TEN,
        ["fed_avg_m", "server_training", "fed_avg_r"],
    ),
    "sizes": (fedquilt.power_law(TEN, clients=20), TEN, ["fed_avg", "fed_vc"]),
    "both": (
        fedquilt.dirichlet_per_class(MANY, clients=50, alpha=0.02),
        MANY,
        ["fed_avg_m", "fed_ir", "fed_vc", "fed_avg_r"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_to_try_first(name: str) -> None:
    held, labels, expected = CASES[name]
    assert [line.methods[0] for line in advice(skew(held, labels)) if "benchmark" not in line.source] == expected


@pytest.mark.parametrize("name", CASES)
def test_every_line_names_what_exists_and_cites_a_table_or_figure(name: str) -> None:
    held, labels, _ = CASES[name]
    for line in advice(skew(held, labels)):
        for method in line.methods:
            assert (
                method in registry.methods
                or method in registry.wrappers
                or method in registry.simulations
                or takes(fedquilt.fed_avg, method)
            )
        papers = ("McMahan 2017", "Hsu 2019", "Hsu 2020", "Ozdayi 2020", "Wei 2022")
        cited = any(paper in line.source for paper in papers) and ("Table" in line.source or "Figure" in line.source)
        assert cited or line.source.startswith("fedquilt's benchmark")


def test_few_examples_are_told_from_skew() -> None:
    labels = np.arange(3000) % 100
    (first, *_) = advice(skew(fedquilt.iid(labels, clients=600), labels))
    assert "as much as by chance" in first.found


def test_sequences_have_no_advice_on_classes() -> None:
    labels = np.zeros((30, 4), dtype=np.int64)
    assert advice(skew(fedquilt.iid(labels, clients=3), labels)) == []
    assert [line.methods for line in advice(skew(fedquilt.power_law(labels, clients=5), labels))] == [("fed_vc",)]
