"""A wrong experiment file is refused with one message that says what is wrong, where, and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from experiment.design.test_design import DIGITS, METHODS

import fedquilt
from fedquilt.base.errors import SpecError

GRID = {"grid": {"method.batch": [10, 20]}}
CASES = {"case": METHODS}
TUNE = {"tune": {"by": "test", "method.lr": [0.1, 0.2]}}

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    # cases
    "a case that is no table": (
        {"case": {"method": {"FedAvg": 3}}},
        "[case.method] FedAvg: a case is a table: write [case.AXIS.NAME]",
    ),
    "a case without an axis": (
        {"case": {"FedAvg": {"method": {"name": "fed_avg"}}}},
        "[case.FedAvg.method]: the axis is missing: write [case.method.FedAvg], for example",
    ),
    "a case with a table that there is not": (
        {"case": {"method": {"A": {"metod": {"lr": 1}}}}},
        "[case.method.A]: metod: is not a table of a spec; did you mean 'method'?",
    ),
    "a case with a method that there is not": (
        {"case": {"method": {"A": {"method": {"name": "fed_agv"}}}}},
        "(A): [method] name: no method is called 'fed_agv'; did you mean 'fed_avg'?",
    ),
    "a case with a key that its method does not take": (
        {"case": {"method": {"A": {"method": {"server_momentum": 0.9}}}}},
        "(A): [method] server_momentum: unknown key",
    ),
    "a wrapper that is no list": (
        {"case": {"method": {"A": {"wrap": {"name": "fed_prox"}}}}},
        "[case.method.A]: wrap: must be a list of tables, such as [{ name = … }], got {'name': 'fed_prox'}",
    ),
    "an empty axis": ({"case": {"method": {}}}, "[case]: write a table for each, such as [case.method.FedAvg]"),
    # lists
    "a value that is no list": ({"grid": {"method.lr": 0.1}}, '[grid] "method.lr": must be a list of values, got 0.1'),
    "an empty list": ({"grid": {"method.lr": []}}, '[grid] "method.lr": must be a list of values, got []'),
    "a value twice": (
        {"grid": {"method.lr": [0.1, 0.1]}},
        '[grid] "method.lr": the value 0.1 is in the list twice',
    ),
    "a key without its table": ({"grid": {"lr": [0.1]}}, '[grid] lr: write the table too, as in "method.lr"'),
    "a key of no table": (
        {"grid": {"metod.lr": [0.1]}},
        "[grid] metod.lr: there is no table metod; did you mean 'method'?",
    ),
    "a value that does not fit": (
        {"grid": {"method.lr": [0.1, -1.0]}},
        "(lr=-1): [method] lr: must be greater than 0, got -1.0",
    ),
    "a key in two lists": (
        GRID | {"tune": {"by": "test", "method.batch": [10]}},
        '[grid] "method.batch": varies in [tune] too; remove it from one of them',
    ),
    "zipped lists of different lengths": (
        {"zip": {"size": {"partition.clients": [10, 20], "method.fraction": [0.5]}}},
        '[zip.size]: these keys change together, and need equally many values: "partition.clients" has 2',
    ),
    "repeats of different lengths": (
        {"repeat": {"run.seed": [1, 2], "partition.seed": [1]}},
        '[repeat]: these keys change together, and need equally many values: "run.seed" has 2, "partition.seed" has 1',
    ),
    "too many": (
        {"grid": {"run.seed": list(range(1000)), "method.lr": [0.001 * (1 + x) for x in range(1000)]}},
        "has 1,000,000 cells; an experiment has at most 20,000 trials",
    ),
    "too many to tune": (
        {
            "grid": {"run.seed": list(range(100))},
            "tune": {"by": "test", "method.lr": [0.001 * (1 + x) for x in range(1000)]},
        },
        "has 100,000 trials; an experiment has at most 20,000",
    ),
    "a key in two axes of cases": (
        {"case": {"a": {"x": {"method": {"lr": 0.1}}}, "b": {"y": {"method": {"lr": 0.2}}}}},
        '[case.b] "method.lr": varies in [case.a] too; remove it from one of them',
    ),
    "a key that a case sets and that is repeated": (
        {"case": {"a": {"x": {"run": {"seed": 1}}}}, "repeat": {"run.seed": [1, 2]}},
        '[case.a] "run.seed": varies in [repeat] too; remove it from one of them',
    ),
    "a condition that sets what a grid varies": (
        GRID | {"when": [{"case": {"batch": 10}, "method": {"batch": 5}}]},
        '[[when]] 1 method.batch: it varies, in [grid] "method.batch": change the list there instead',
    ),
    # keys that exist in no case
    "a key of the file that no case takes": (
        CASES | {"method": {"lr": 0.1, "name": "fed_avg", "momentun": 0.5}},
        "[method] momentun: no case takes this key; did you mean 'momentum'?",
    ),
    "a tuned key that no case takes": (
        CASES | {"tune": {"by": "test", "method.mu": [1.0]}},
        '[tune] "method.mu": no case takes this key; known: ',
    ),
    "a repeated key that no case takes": (
        CASES | {"repeat": {"method.seed": [1, 2]}},
        '[repeat] "method.seed": no case takes this key',
    ),
    "a derived key that no case takes": (
        CASES | {"derive": {"method.mu": "1 / 2"}},
        '[derive] "method.mu": no case takes this key',
    ),
    "a tuned key that every case sets": (
        TUNE | {"case": {"method": {"A": {"method": {"lr": 0.1}}}}},
        '[tune] "method.lr": every case sets it by itself, so that nothing is tuned',
    ),
    "a grid over what a case does not take": (
        {
            "case": {"method": {"FedAvg": {}, "FedAvgM": {"method": {"name": "fed_avg_m"}}}},
            "grid": {"method.server_momentum": [0.5, 0.9]},
        },
        '[grid] "method.server_momentum": is not a key of the case FedAvg, 0.5: fed_avg does not take it',
    ),
    "a wrapper's key in a grid": (
        CASES | {"grid": {"wrap.1.mu": [0.1, 1.0]}},
        '[grid] "wrap.1.mu" 0.1: wrap.1.mu: write wrap.NUMBER.key; the spec has 0 [[wrap]] tables',
    ),
    # tuning
    "tuning that does not say by what": (
        {"tune": {"method.lr": [0.1]}},
        '[tune] by: say by which accuracy the best values are chosen, "validation" or "test", got None',
    ),
    "tuning by the training set": ({"tune": {"by": "train", "method.lr": [0.1]}}, "[tune] by: say by which accuracy"),
    "one fold": (
        {"tune": {"by": "validation", "folds": 1, "method.lr": [0.1]}},
        "[tune] folds: must be a whole number from 2 to 1000, got 1",
    ),
    "folds of the test set": (
        {"tune": {"by": "test", "folds": 3, "method.lr": [0.1]}},
        "[tune] folds: cross-validation chooses by = \"validation\", got 'test'",
    ),
    "validation without a split": (
        {"tune": {"by": "validation", "method.lr": [0.1]}},
        '[tune] by: "validation" needs examples to choose by: write [run] validation = 0.1, or [tune] folds = 5',
    ),
    "a case that tunes alone": (
        {"case": {"method": {"A": {"tune": {"method.lr": [0.1]}}}}},
        '[tune] by: a case tunes method.lr: say how, with [tune] by = "validation" or "test"',
    ),
    # conditions
    "a condition for no axis": (
        CASES | {"when": [{"case": {"metod": "FedAvg"}, "skip": True}]},
        "[[when]] 1 case: there is no axis metod; did you mean 'method'?",
    ),
    "a condition for no case": (
        CASES | {"when": [{"case": {"method": "FedAvgg"}, "skip": True}]},
        "[[when]] 1 case: the axis method has no case 'FedAvgg'; did you mean 'FedAvg'?",
    ),
    "a condition that says not where": (CASES | {"when": [{"skip": True}]}, "[[when]] 1 case: say where it holds"),
    "no cell left": (
        GRID | {"when": [{"case": {"batch": [10, 20]}, "skip": True}]},
        "no trial is left: [[when]] leaves every cell out",
    ),
    # metrics
    "a metric that there is not": (
        GRID | {"metric": {"name": "round_to", "target": 0.9}},
        "[metric] name: there is no metric 'round_to'; did you mean 'rounds_to'?",
    ),
    "no metric at all": (
        GRID | {"metric": []},
        "metric: is an empty list; name at least one metric, or remove the key",
    ),
    "rounds to nothing": (GRID | {"metric": {"name": "rounds_to"}}, "[metric] target: is required"),
    "a target of the best": (
        GRID | {"metric": {"name": "best", "target": 0.9}},
        "[metric] target: belongs to rounds_to",
    ),
    "at no place": (
        GRID | {"metric": {"name": "at"}},
        "[metric]: at needs one of round, batches, gradients, bytes, seconds",
    ),
    "a mean of nothing": (
        GRID | {"metric": {"name": "mean_of_last"}},
        "[metric] n: is required: of how many evaluations to take the mean",
    ),
    "an unknown key of a metric": (
        GRID | {"metric": {"name": "best", "tagret": 0.9}},
        "[metric] tagret: unknown key; did you mean 'target'?",
    ),
    "two metrics of one name": (
        GRID | {"metric": [{"name": "last"}, {"name": "last"}]},
        '[metric]: two are called "last accuracy"; give each a label of its own',
    ),
    "relative to no case": (
        CASES | {"metric": {"relative_to": {"method": "Central"}}},
        "[metric] relative_to: the axis method has no case 'Central'; known: ",
    ),
    "relative to a cell that is left out": (
        CASES
        | GRID
        | {
            "metric": {"relative_to": {"method": "FedAvg"}},
            "when": [{"case": {"method": "FedAvg", "batch": 20}, "skip": True}],
        },
        ", 20 it would be FedAvg, 20, and there is no such cell: name its case on other axes, too",
    ),
    # published values
    "published in no table": (
        GRID | {"published": {"Table 1": 87}},
        "published: must be an array of tables, written as [[published]], got {'Table 1': 87}",
    ),
    "published for no case": (
        GRID | {"published": [{"source": "T", "cell": {"batch": 50}, "value": 1}]},
        "[[published]] 1 cell: the axis batch has no case 50; known: 10, 20",
    ),
    "published for no axis": (
        GRID | {"published": [{"source": "T", "cell": {"epochs": 5}, "value": 1}]},
        "[[published]] 1 cell: there is no axis epochs; known: batch",
    ),
    "published for a cell that is left out": (
        GRID
        | {
            "when": [{"case": {"batch": 20}, "skip": True}],
            "published": [{"source": "T", "cell": {"batch": 20}, "value": 1}],
        },
        "[[published]] 1: there is no cell 20: a [[when]] leaves it out",
    ),
    "published without a source": (
        GRID | {"published": [{"cell": {"batch": 10}, "value": 1}]},
        '[[published]] 1 source: say where it is published, as in source = "Table 1", got None',
    ),
    "published for many cells": (
        GRID | {"published": [{"source": "T", "value": 1}]},
        "[[published]] 1 cell: say which cell: it leaves batch open; values = { case = value, … } gives one for each",
    ),
    "published twice": (
        GRID | {"published": [{"source": "T", "cell": {"batch": 10}, "value": 1}] * 2},
        "[[published]] 2: T has a value for 10 already",
    ),
    "published as words": (
        GRID | {"published": [{"source": "T", "cell": {"batch": 10}, "value": "much"}]},
        "[[published]] 1 10: must be a number, or text such as",
    ),
    # layout
    "an axis in no list": (
        CASES | GRID | {"experiment": {"rows": ["method"], "columns": []}},
        "[experiment]: batch is neither in rows nor in columns: add it to one of them",
    ),
    "an axis twice": (
        GRID | {"experiment": {"rows": ["batch"], "columns": ["method.batch"]}},
        "[experiment]: an axis is named twice in rows and columns: batch, batch",
    ),
    "rows of no axis": (
        GRID | {"experiment": {"rows": ["bach"]}},
        "[experiment] rows: there is no axis bach; did you mean 'batch'?",
    ),
    "monotonic in words": (
        GRID | {"experiment": {"monotonic": "yes"}},
        "[experiment] monotonic: must be true or false, got 'yes'",
    ),
    "an unknown key of the experiment": (
        GRID | {"experiment": {"name": "x"}},
        "[experiment] name: unknown key; known: caption, columns, monotonic, rows, source, title",
    ),
    # significance
    "a test of one run": (
        CASES | {"significance": {"across": "method"}},
        '[significance]: a test needs at least two repeats; write [repeat] "run.seed" = [1, 2, 3]',
    ),
    "a test that there is not": (
        CASES | {"repeat": {"run.seed": [1, 2]}, "significance": {"test": "wilcoxon"}},
        "[significance] test: must be one of 'paired' or 'welch', got 'wilcoxon'",
    ),
    # one folder
    "two trials with one folder": (
        {"case": {"method": {"FedAvg": {}, "fedavg": {}}}},
        "two trials would have one folder, FedAvg and fedavg; give their cases names that",
    ),
    # what there was before
    "the old sweep table": (
        {"sweep": {"method.lr": [0.1]}},
        "[sweep]: is written [grid] now, or [tune] or [repeat]; see docs/experiments.md",
    ),
}


@pytest.mark.parametrize(("tables", "message"), BROKEN.values(), ids=BROKEN)
def test_refused(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        fedquilt.experiment(DIGITS | tables)
    assert "\n" not in str(caught.value), "one message"
    assert str(caught.value).startswith("experiment")


SMALL: dict[str, tuple[dict[str, Any], str]] = {
    "a key that there is not": (
        {"method": {"learning_rate": 1}},
        "[scale.small] method.learning_rate: no case takes this key; did you mean 'lr'?",
    ),
    "a table that there is not": (
        {"metod": {"lr": 1}},
        "[scale.small] metod: there is no such table; did you mean 'method'?",
    ),
    "a key that varies": (
        {"method": {"batch": 5}},
        '[scale.small] method.batch: it varies, in [grid] "method.batch": change the list there instead',
    ),
    "a key of a run that there is not": (
        {"run": {"round": 1}},
        "[scale.small] run.round: [run] has no such key; did you mean 'rounds'?",
    ),
    "a grid that there is not": (
        {"grid": {"method.epochs": [1]}},
        "[scale.small] grid method.epochs: the file has no such key; did you mean 'method.batch'?",
    ),
    "a change of a case that there is not": (
        {"case": {"method": {"FedAvg": {"run": {"rounds": 1}}}}},
        "[scale.small] case method: the file has no such key",
    ),
    "a case that there is not": (
        {"keep": {"batch": [30]}},
        "[scale.small] keep: the axis batch has no case 30; known: 10, 20",
    ),
    "no case": ({"keep": {"batch": []}}, "[scale.small] keep: batch: at least one case must stay"),
}


@pytest.mark.parametrize("asked", ["small", None], ids=["asked for", "not asked for"])
@pytest.mark.parametrize(("scale", "message"), SMALL.values(), ids=SMALL)
def test_a_scale_that_names_what_there_is_not(scale: dict[str, Any], message: str, asked: str | None) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        fedquilt.experiment(DIGITS | GRID | {"scale": {"small": scale}}, scale=asked)


def test_a_scale_that_there_is_not() -> None:
    with pytest.raises(SpecError, match="there is no scale smal; did you mean 'small'"):
        fedquilt.experiment(DIGITS | GRID | {"scale": {"small": {}}}, scale="smal")
    with pytest.raises(SpecError, match="there is no scale small: the file has none"):
        fedquilt.experiment(DIGITS | GRID, scale="small")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("eta * (1 - beta", "is not a formula"),
        ("__import__('os')", "__import__: there is no such function"),
        ("open(1)", "open: there is no such function; known: abs, "),
        ("'a' * 3", "a formula has numbers, names"),
        ("[1][0]", "a formula has numbers, names"),
        ("eta if 1 else 2", "a formula has numbers, names"),
        ("teta * 2", "teta: there is no such value; did you mean 'eta'?"),
        ("method.name + 1", "method.name: must be a number, got 'fed_avg'"),
        ("1 / 0", "cannot be computed: "),
        ("10^400", "cannot be computed: "),
        ("sqrt(0 - 1)", "cannot be computed: "),
        ("inf - inf", "is not a number"),
        (True, "must be a formula in quotes"),
        ("9" * 600, "must be a formula in quotes"),
    ],
)
def test_a_formula_that_is_none(formula: object, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape('[derive] "method.lr": ')) as caught:
        fedquilt.experiment(DIGITS | GRID | {"values": {"eta": 1.0}, "derive": {"method.lr": formula}})
    assert message in str(caught.value)


def test_what_the_command_line_sets_must_be_taken_and_must_not_vary() -> None:
    with pytest.raises(SpecError, match=re.escape("--set method.mu: no case takes this key")):
        fedquilt.experiment(DIGITS | GRID, ["method.mu=1"])
    with pytest.raises(SpecError, match=re.escape("--set method.batch: it varies, in ")):
        fedquilt.experiment(DIGITS | GRID, ["method.batch=1"])
    with pytest.raises(SpecError, match=re.escape("--only 30: there is no such case; known: 10, 20")):
        fedquilt.experiment(DIGITS | GRID, only=["30"])


def test_a_file_of_many_runs_is_not_run_as_one(tmp_path: Path) -> None:
    from fedquilt import load_spec

    path = tmp_path / "many.toml"
    path.write_text(fedquilt.experiment(DIGITS | GRID).to_toml())
    with pytest.raises(SpecError, match=re.escape("[grid]: this file describes many runs; use `fedquilt sweep`")):
        load_spec(path)
