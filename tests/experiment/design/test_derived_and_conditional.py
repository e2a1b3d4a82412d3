"""Derived and conditional keys, scales, cross-validation, published values: what a file says is what trials have."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from experiment.design.test_design import DIGITS, METHODS
from hypothesis import given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.formula import read_formula


def load(
    at: str | None = None, only: list[str] | None = None, sets: list[str] | None = None, **tables: Any
) -> Experiment:
    return fedquilt.experiment(DIGITS | tables, sets or [], scale=at, only=only or [])


def argument(experiment: Experiment, part: str, key: str) -> list[Any]:
    return [trial.spec.parts[part].arguments.get(key) for trial in experiment.trials]


# derived keys


def test_the_effective_rate_is_held_while_momentum_varies() -> None:
    """Hsu 2020, Figure 8: η = η_eff · (1 − β)."""
    experiment = load(
        method={"name": "fed_avg_m"},
        values={"eta_eff": 1.0},
        grid={"values.eta_eff": [0.1, 1.0], "method.server_momentum": [0.0, 0.9]},
        derive={"method.lr": "eta_eff * (1 - method.server_momentum)"},
    )
    assert experiment.axes == {"eta_eff": ("0.1", "1"), "server_momentum": ("0", "0.9")}
    assert argument(experiment, "method", "lr") == pytest.approx([0.1, 0.01, 1.0, 0.1])
    assert experiment.trials[1].derived == {"method.lr": pytest.approx(0.01)}


def test_a_multiplicative_grid() -> None:
    """McMahan 2017, §3: learning rates on a grid of resolution 10^(1/3)."""
    experiment = load(tune={"by": "test", "values.k": [-3, -2, -1, 0]}, derive={"method.lr": "10^(k/3)"})
    assert argument(experiment, "method", "lr") == pytest.approx([0.1, 0.21544, 0.46416, 1.0], rel=1e-4)
    assert [trial.name for trial in experiment.trials] == ["k=-3", "k=-2", "k=-1", "k=0"]


def test_a_derived_key_may_use_one_before_it_and_stay_whole() -> None:
    experiment = load(
        grid={"method.epochs": [1, 4]},
        derive={"values.updates": "8 * method.epochs", "run.rounds": "max(2, round(64 / updates))"},
    )
    assert [trial.spec.options.rounds for trial in experiment.trials] == [8, 2]


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.integers(0, 9).map(str) | st.sampled_from(["a", "b.c", "0.5"]),
        lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        max_leaves=8,
    )
)
def test_formulas_are_arithmetic(text: str) -> None:
    formula = read_formula(text, "here")
    try:
        expected = eval(text.replace("b.c", "3.0"), {"__builtins__": {}}, {"a": 2.5})  # noqa: S307 - made above
    except ZeroDivisionError:
        return
    assert formula.value({"values": {"a": 2.5}, "b": {"c": 3.0}}) == pytest.approx(expected, nan_ok=True)


def test_powers_bind_as_in_mathematics() -> None:
    assert read_formula("2 * 10^(3/3) + 1", "").value({}) == 21
    assert read_formula("-2^2", "").value({}) == -4
    assert isinstance(read_formula("2^3", "").value({}), int)


# conditional keys


def test_a_case_has_keys_and_tuned_values_of_its_own() -> None:
    cases = {
        "method": {**METHODS["method"], "FedProx": METHODS["method"]["FedProx"] | {"tune": {"wrap.1.mu": [0.1, 1.0]}}}
    }
    experiment = load(case=cases, tune={"by": "test", "method.lr": [0.1, 0.3]})
    by_case = {case: [t.tuned for t in experiment.trials if t.cell == (case,)] for case in experiment.axes["method"]}
    assert len(by_case["FedAvg"]) == 2
    assert by_case["FedProx"] == [{"method.lr": lr, "wrap.1.mu": mu} for lr in (0.1, 0.3) for mu in (0.1, 1.0)]
    assert {t.name for t in experiment.trials if t.cell == ("FedProx",)} >= {"FedProx,lr=0.3,mu=1"}


def test_a_tuned_key_is_tuned_where_it_is_taken() -> None:
    cases = {"FedAvg": {}, "FedAvgM": {"method": {"name": "fed_avg_m"}}}
    experiment = load(case={"method": cases}, tune={"by": "test", "method.server_momentum": [0.5, 0.9]})
    assert [trial.name for trial in experiment.trials] == [
        "FedAvg", "FedAvgM,server_momentum=0.5", "FedAvgM,server_momentum=0.9"
    ]  # fmt: skip


def test_keys_that_hold_in_some_cells_and_cells_that_are_left_out() -> None:
    experiment = load(
        case=METHODS,
        grid={"method.batch": [10, math.inf]},
        when=[
            {"case": {"method": ["FedAvg", "FedProx"], "batch": math.inf}, "method": {"lr": 0.7}, "run.rounds": 9},
            {"case": {"method": "SCAFFOLD", "method.batch": 10}, "skip": True},
        ],
    )
    cells = {trial.cell: trial.spec for trial in experiment.trials}
    assert len(cells) == 7
    assert ("SCAFFOLD", "10") not in cells
    assert [cells["FedProx", batch].parts["method"].arguments["lr"] for batch in ("10", "inf")] == [0.1, 0.7]
    assert [cells["FedAvg", batch].options.rounds for batch in ("10", "inf")] == [3, 9]


def test_wrappers_of_two_axes_add_up() -> None:
    """Hsu 2020, Table 3: FedVC and FedIR, each on and off."""
    experiment = load(
        case={
            "FedVC": {"off": {}, "on": {"wrap": [{"name": "fed_vc", "size": 32}]}},
            "FedIR": {"off": {}, "on": {"wrap": [{"name": "fed_ir"}]}},
        }
    )
    wraps = {
        trial.cell: [part.name for name, part in trial.spec.parts.items() if name.startswith("wrap")]
        for trial in experiment.trials
    }
    assert wraps == {
        ("off", "off"): [], ("off", "on"): ["fed_ir"], ("on", "off"): ["fed_vc"], ("on", "on"): ["fed_vc", "fed_ir"],
    }  # fmt: skip


# scales


SMALL = {
    "small": {
        "run": {"rounds": 2},
        "partition.clients": 5,
        "repeat": {"run.seed": [1]},
        "tune": {"method.lr": [0.1]},
        "keep": {"method": ["FedAvg", "FedAvgM"]},
    }
}


def test_a_scale_overrides_rounds_repeats_lists_and_cases() -> None:
    tables: dict[str, Any] = {
        "case": {"method": METHODS["method"] | {"FedAvg": {"run": {"rounds": 50}}}},
        "tune": {"by": "test", "method.lr": [0.1, 0.3]},
        "repeat": {"run.seed": [1, 2, 3]},
        "published": [{"source": "T", "values": {"SCAFFOLD": 0.5, "FedAvg": 0.25}}],
        "scale": SMALL,
    }
    full, small = load(**tables), load("small", **tables)
    assert (len(full.trials), len(small.trials)) == (4 * 2 * 3, 2)
    assert [trial.spec.options.rounds for trial in small.trials] == [2, 2], "whatever the case says"
    assert argument(small, "partition", "clients") == [5, 5]
    assert {trial.spec.options.rounds for trial in full.trials} == {3, 50}
    assert [each.key for each in small.published] == [("FedAvg",)], "values of cases that are left out are left out too"
    assert small.scale == "small"


def test_a_scale_changes_cases_ranges_and_zipped_keys() -> None:
    tables: dict[str, Any] = {
        "case": {"method": {"FedAvg": {}, "FedAvgM": {"method": {"name": "fed_avg_m"}}}},
        "zip": {"size": {"partition.clients": [10, 20], "method.fraction": [0.5, 0.25]}},
        "tune": {"by": "test", "method": {"lr": [0.1, 0.2]}},
        "scale": {
            "small": {
                "case": {"method": {"FedAvgM": {"method": {"server_momentum": 0.5}}}},
                "zip": {"size": {"partition": {"clients": [4]}, "method.fraction": [1.0]}},
                "tune": {"method.lr": [0.3]},
            }
        },
    }
    small = load("small", **tables)
    assert [trial.name for trial in small.trials] == [
        "FedAvg,clients=4,fraction=1,lr=0.3", "FedAvgM,clients=4,fraction=1,lr=0.3"
    ]  # fmt: skip
    assert small.trials[1].spec.parts["method"].arguments["server_momentum"] == 0.5


def test_a_scale_of_one_repeat_and_fewer_cases_has_no_test_and_fewer_figures() -> None:
    tables: dict[str, Any] = {
        "case": METHODS,
        "repeat": {"run.seed": [1, 2]},
        "significance": {"across": "method", "test": "welch"},
        "figure": [{"name": "population", "cell": {"method": case}} for case in ("FedAvg", "SCAFFOLD")],
        "scale": {"small": {"repeat": {"run.seed": [1]}, "keep": {"method": ["FedAvg"]}}, "full": {"run.rounds": 4}},
    }
    small, full = load("small", **tables), load("full", **tables)
    assert (small.significance, len(small.figures)) == (None, 1)
    assert full.significance is not None
    assert (full.significance.test, len(full.figures)) == ("welch", 2)
    assert full.trials[0].spec.options.rounds == 4
    del tables["scale"]
    assert load("full", **tables).trials[0].spec.options.rounds == 3, "without a table, it is the file as it is"


def test_wrappers_of_the_file_are_those_of_every_case() -> None:
    experiment = load(wrap=[{"name": "fed_ir"}], case=METHODS)
    assert [trial.spec.parts["wrap 1"].name for trial in experiment.trials] == ["fed_ir"] * 4
    assert experiment.trials[1].spec.parts["wrap 2"].name == "fed_prox"


def test_what_is_set_holds_in_every_case_that_takes_it() -> None:
    experiment = load(case=METHODS, sets=["run.rounds=7", "method.server_momentum=0.5"])
    assert {trial.spec.options.rounds for trial in experiment.trials} == {7}
    assert argument(experiment, "method", "server_momentum") == [None, None, 0.5, None]
    changed = load(grid={"method.lr": [0.1, 0.2]}, sets=["grid.method.lr=[0.5]"])
    assert argument(changed, "method", "lr") == [0.5]


def test_only_some_cases() -> None:
    experiment = load(case=METHODS, grid={"method.batch": [10, 20]}, only=["FedProx"])
    assert {trial.cell for trial in experiment.trials} == {("FedProx", "10"), ("FedProx", "20")}
    assert len(load(case=METHODS, grid={"method.batch": [10, 20]}, only=["batch=10"]).trials) == 4
    assert len(load(case=METHODS, grid={"method.batch": [10, 20]}, only=["batch=10", "batch=20"]).trials) == 8
    both = load(case=METHODS, grid={"method.batch": [10, 20]}, only=["FedProx", "batch=10"])
    assert {trial.cell for trial in both.trials} == {("FedProx", "10")}


# cross-validation


def test_folds_come_first_and_the_chosen_values_are_trained_on_everything() -> None:
    experiment = load(
        tune={"by": "validation", "folds": 3, "method.lr": [0.1, 0.3]}, repeat={"run.seed": [1, 2]}, case=METHODS
    )
    assert len(experiment.trials) == 4 * 2 * 3
    assert [(t.fold, t.spec.options.folds, t.spec.options.fold) for t in experiment.trials[:3]] == [
        (0, 3, 0), (1, 3, 1), (2, 3, 2)
    ]  # fmt: skip
    assert experiment.trials[1].name == "FedAvg,lr=0.1,fold=1"
    final = experiment.trial(("FedAvg",), {"method.lr": 0.3}, repeat=1)
    assert (final.name, final.fold, final.spec.options.folds) == ("FedAvg,lr=0.3,seed=2", None, None)


# published values


def test_published_values_of_a_whole_table() -> None:
    experiment = load(
        case={"clients": {"IID": {}, "Non-IID": {"partition": {"name": "shards"}}}},
        grid={"method.fraction": [0.0, 0.1], "method.batch": [math.inf, 10]},
        metric={"name": "rounds_to", "target": 0.97},
        published=[
            {"source": "Table 1", "cell": {"fraction": 0.0},
             "values": {"IID": {"inf": 1455, "10": 316}, "Non-IID": {"inf": "> 4k"}}},
            {"source": "Table 1", "cell": {"fraction": 0.1, "clients": "IID", "batch": 10}, "value": "87 ± 2.5"},
            {"source": "Table 4", "cell": {"fraction": 0.1, "clients": "IID", "batch": 10}, "value": 92},
        ],
    )  # fmt: skip
    found = {(*each.key, each.source): (each.value, each.std, each.beyond) for each in experiment.published}
    assert found == {
        ("IID", "0", "inf", "Table 1"): (1455, None, False),
        ("IID", "0", "10", "Table 1"): (316, None, False),
        ("Non-IID", "0", "inf", "Table 1"): (4000, None, True),
        ("IID", "0.1", "10", "Table 1"): (87, 2.5, False),
        ("IID", "0.1", "10", "Table 4"): (92, None, False),
    }


def test_names_of_folders_are_safe(tmp_path: Path) -> None:
    names = ["../up", "/abs", "a/b", ".", "..", "x" * 300, "tab\there", "∞ and α", 'quo"te', " spaces "]
    cases = {
        name: {"run": {"seed": number}} for number, name in enumerate(names) if name.isprintable() and len(name) < 100
    }
    experiment = load(case={"odd": cases})
    for trial in experiment.trials:
        folder = tmp_path / trial.name
        assert trial.name.isprintable()
        assert folder.resolve().parent == tmp_path.resolve()
        folder.mkdir()
