"""How many clients take part in a round: a share of them, or a number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedquilt
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.experiment.folder import RunFolder

METHODS = {"fed_avg": fedquilt.fed_avg, "fed_avg_m": fedquilt.fed_avg_m, "fed_sgd": fedquilt.fed_sgd}


@pytest.mark.parametrize("name", METHODS)
def test_a_cohort_is_the_fraction_that_gives_the_same_number(name, blobs, unbalanced, smooth):
    """Half of six clients are three, drawn by the same generator: the same bits."""
    train = [
        fedquilt.train(smooth, blobs, unbalanced, METHODS[name](**how), rounds=3, engine=fedquilt.inline())
        for how in ({"fraction": 0.5}, {"cohort": 3})
    ]
    assert train[0].digest == train[1].digest
    assert all(len(record["clients"]) == 3 for record in train[1].history)


@pytest.mark.parametrize("name", METHODS)
def test_both_are_refused(name):
    with pytest.raises(SpecError, match=r"fraction = 0\.5 and cohort = 3 both say how many clients take part"):
        METHODS[name](fraction=0.5, cohort=3)


def test_a_spec_says_where_both_are_given(command):
    answer = command("run", "spec.toml", "--set", "method.cohort=2", "--set", "method.fraction=0.5")
    assert answer.code == 2
    assert "spec.toml: [method] fraction = 0.5 and cohort = 2 both say how many clients" in answer.err


def test_a_spec_with_a_cohort_can_be_resumed(command):
    assert (
        command("run", "spec.toml", "--unset", "method.fraction", "--set", "method.cohort=2", "--out", "out").code == 0
    )
    assert command("resume", "out", "--rounds", "6").code == 0
    assert all(len(record["clients"]) == 2 for record in RunFolder(Path("out")).history())


def test_more_clients_than_there_are(blobs, unbalanced, smooth):
    """Virtual clients are drawn with replacement: 30 slots on six clients. Nobody else draws a client twice."""
    train = lambda method: fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=fedquilt.inline())  # noqa: E731
    for method in (fedquilt.fed_avg(cohort=30), fedquilt.fed_vc(fedquilt.fed_avg(cohort=30), 20, distinct=True)):
        with pytest.raises(FedquiltError, match="cohort = 30, but there are only 6 clients, and none is drawn twice"):
            train(method)
    history = train(fedquilt.fed_vc(fedquilt.fed_avg(cohort=30), size=20)).history
    assert all(len(record["clients"]) == 30 and record["examples"] == 30 * 20 for record in history)


def test_where_fewer_are_there_all_of_them_take_part(blobs, unbalanced, smooth):
    """Clusters of clients and those who are available may be fewer than the cohort."""
    method = fedquilt.fl_hc(fedquilt.fed_avg(cohort=4), rounds=1, clusters=3)
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=3, engine=fedquilt.inline())
    assert len(result.run.groups) == 3
    assert len(set(result.history.records[-1]["clients"])) == sum(
        min(4, len(np.atleast_1d(group.clients))) for group in result.run.groups
    )
