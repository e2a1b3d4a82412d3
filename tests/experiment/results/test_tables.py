"""Tables in the paper's shape as Markdown, CSV and LaTeX: ours beside published, difference and spread."""

from __future__ import annotations

import csv
import io
import math

import pytest
from experiment.results.strict_latex import LatexError, check_latex
from experiment.results.test_cells import ended, load
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.results.cells import Cell, cells_from
from fedquilt.experiment.results.csv_table import to_csv
from fedquilt.experiment.results.latex import escaped, to_latex
from fedquilt.experiment.results.markdown import to_markdown
from fedquilt.experiment.results.table import table_of


def wei() -> tuple[Experiment, list[Cell]]:
    """Two data sets and three methods over three seeds, in the shape of Wei 2022, Table 3."""
    experiment = load(
        experiment={"title": "Methods", "source": "Wei 2022, Table 3", "rows": ["data"], "columns": ["method"]},
        case={
            "data": {"digits": {}, "digits_2 & more": {"partition": {"clients": 5}}},
            "method": {"FedAvg": {}, "FedProx": {"wrap": [{"name": "fed_prox", "mu": 0.1}]}, "FedAvgR, α": {}},
        },
        repeat={"run.seed": [1, 2, 3]},
        published=[
            {"source": "Table 3", "unit": "%", "cell": {"data": "digits"},
             "values": {"FedAvg": "84.29 ± 0.06", "FedProx": "84.27±0.06"}},
        ],
    )  # fmt: skip
    base = {"FedAvg": 0.84, "FedProx": 0.8401, "FedAvgR, α": 0.9}
    wiggle = {1: 0.01, 2: 0.0, 3: -0.012}
    outcomes = [
        ended(trial, [base[trial.cell[1]] + wiggle[trial.repeated["run.seed"]] * (1 + 0.1 * len(trial.cell[1]))])
        for trial in experiment.trials
    ]
    return experiment, cells_from(experiment, outcomes)


def test_markdown() -> None:
    experiment, cells = wei()
    text = to_markdown(table_of(experiment, cells))
    lines = text.splitlines()
    assert lines[2] == "| data | FedAvg | published | difference | FedProx | published | difference | FedAvgR, α |"
    assert lines[4].startswith("| digits | 83.89 ± 1.76 | 84.29 ± 0.06 | −0.40 |")
    assert lines[5].startswith("| digits\\_2 & more | 83.89 ± 1.76 |  |  |")
    assert "**89.87 ± 2.20**" in lines[4]
    assert "Mean ± sample standard deviation over 3 repeats (run.seed)." in text
    assert "underlined: not significantly worse than it (paired t-test, 95%)." in text


def test_latex_is_what_latex_takes() -> None:
    experiment, cells = wei()
    rows = check_latex(to_latex(table_of(experiment, cells)))
    assert rows[0][1:] == ["FedAvg"] * 3 + ["FedProx"] * 3 + [r"FedAvgR, $\alpha$"]
    assert rows[1] == ["data", "ours", "published", "difference", "ours", "published", "difference", "ours"]
    assert rows[2][:4] == ["digits", r"83.89 $\pm$ 1.76", r"84.29 $\pm$ 0.06", "$-$0.40"]
    assert rows[3][0] == r"digits\_2 \& more"
    assert rows[2][-1] == r"\textbf{89.87 $\pm$ 2.20}"


def test_latex_with_several_axes_of_rows_and_columns() -> None:
    experiment = load(
        case={"clients": {"IID": {}, "Non-IID": {"partition": {"name": "shards"}}}},
        experiment={"rows": ["fraction", "epochs"], "columns": ["clients", "batch"]},
        grid={"method.fraction": [0.0, 0.1], "method.epochs": [1, 5], "method.batch": [math.inf, 10]},
        metric={"name": "rounds_to", "target": 0.97, "baseline": {"fraction": 0.0}},
        published=[
            {
                "source": "Table 1",
                "cell": {"batch": math.inf, "epochs": 1, "fraction": 0.0},
                "values": {"IID": 1455, "Non-IID": "> 50k"},
            }
        ],
    )
    cells = cells_from(experiment, [ended(trial, [0.5, 0.99]) for trial in experiment.trials])
    rows = check_latex(to_latex(table_of(experiment, cells)))
    assert rows[0][2:] == ["IID"] * 4 + ["Non-IID"] * 4
    assert rows[3][:4] == ["0", "1", r"2.0 (1.0$\times$)", "1,455"]
    assert rows[4][:2] == ["", "5"], "a heading stands once"


@pytest.mark.parametrize(
    "text", [r"\begin{tabular}{l}a & b \\" + "\n" + r"\end{tabular}", "50%", r"\textbf{a", r"\unknown{}", "a_b", "∞"]
)
def test_the_strict_reader_can_fail(text: str) -> None:
    with pytest.raises(LatexError):
        check_latex(text)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="ascii") | st.sampled_from("αμ∞±×−–≤é"), max_size=30))
def test_any_text_is_escaped(text: str) -> None:
    plain = "".join(each if each.isprintable() else " " for each in text)
    check_latex(rf"\begin{{tabular}}{{l}}{chr(10)}{escaped(plain)} \\{chr(10)}\end{{tabular}}")


def test_csv_has_a_line_a_cell_with_all_digits() -> None:
    experiment, cells = wei()
    rows = list(csv.DictReader(io.StringIO(to_csv(experiment, cells))))
    assert len(rows) == 6
    assert rows[0]["data"] == "digits"
    assert float(rows[0]["value"]) == cells[0].value
    assert float(rows[0]["published"]) == pytest.approx(0.8429)
    assert rows[5]["published"] == ""
    assert {row["best"] for row in rows} == {"True", "False"}


def test_pandas_has_the_same_rows() -> None:
    pandas = pytest.importorskip("pandas")
    experiment, cells = wei()
    frame = table_of(experiment, cells).to_pandas()
    expected = pandas.read_csv(io.StringIO(to_csv(experiment, cells)))
    assert frame.columns.tolist() == expected.columns.tolist()
    assert frame.value.tolist() == [cell.value for cell in cells]
    assert frame.pivot(index="data", columns="method", values="value").loc["digits", "FedAvg"] == cells[0].value
