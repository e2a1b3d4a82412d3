"""Tables in the paper's shape as Markdown, CSV and LaTeX: ours beside published, difference and spread."""

from __future__ import annotations

import csv
import io
import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from experiment.design.test_design import DIGITS
from experiment.results.strict_latex import LatexError, check_latex
from experiment.results.test_cells import ended, load
from hypothesis import given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.analysis.curves import History
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.page.table import TextTable
from fedquilt.experiment.results.cells import Cell, cells_from
from fedquilt.experiment.results.latex import escaped
from fedquilt.experiment.results.outcome import NOT_RUN, Outcome
from fedquilt.experiment.results.shaped import shaped_html
from fedquilt.experiment.results.table import ResultTable, table_of
from fedquilt.experiment.results.written import difference, ours


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
    text = table_of(experiment, cells).to_markdown()
    lines = text.splitlines()
    assert lines[2] == "| data | FedAvg | published | difference | FedProx | published | difference | FedAvgR, α |"
    assert lines[4].startswith("| digits | 83.89 ± 1.76 | 84.29 ± 0.06 | −0.40 |")
    assert lines[5].startswith("| digits\\_2 & more | 83.89 ± 1.76 |  |  |")
    assert "**89.87 ± 2.20**" in lines[4]
    assert "Mean ± sample standard deviation over 3 repeats (run.seed)." in text
    assert "underlined: not significantly worse than it (paired t-test, 95%)." in text


def test_markdown_names_tuned_values() -> None:
    experiment, cells = wei()
    first, *others = cells
    tuned = replace(first, chosen={"method.lr": 0.1, "method.server_momentum": 0.9})
    text = table_of(experiment, [tuned, *others]).to_markdown()
    assert "| digits | 83.89 ± 1.76<br><small>lr=0.1,server\\_momentum=0.9</small> | 84.29 ± 0.06 |" in text
    assert text.count("<small>") == 1
    missing = replace(tuned, value=None)
    assert "<small>" not in table_of(experiment, [missing, *others]).to_markdown()


def test_a_small_difference_has_the_digits_of_its_value() -> None:
    experiment, cells = wei()
    first = next(cell for cell in cells if cell.published is not None)
    assert first.published is not None
    assert first.published.value is not None
    near = replace(first, value=first.published.value - 2.37e-5)
    assert difference(near) == "−0.00"
    assert "−0.00 |" in table_of(experiment, [near if cell is first else cell for cell in cells]).to_markdown()


def test_latex_is_what_latex_takes() -> None:
    experiment, cells = wei()
    rows = check_latex(table_of(experiment, cells).to_latex())
    assert rows[0][1:] == ["FedAvg"] * 3 + ["FedProx"] * 3 + [r"FedAvgR, $\alpha$"]
    assert rows[1] == ["data", "ours", "published", "difference", "ours", "published", "difference", "ours"]
    assert rows[2][:4] == ["digits", r"83.89 $\pm$ 1.76", r"84.29 $\pm$ 0.06", "$-$0.40"]
    assert rows[3][0] == r"digits\_2 \& more"
    assert rows[2][-1] == r"\textbf{89.87 $\pm$ 2.20}"


def mcmahan() -> ResultTable:
    """Two axes of rows and two of columns, with speed-ups, in the shape of McMahan 2017, Table 2."""
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
            },
            {
                "source": "Table 4",
                "cell": {"batch": math.inf, "epochs": 1, "fraction": 0.0, "clients": "IID"},
                "value": 1500,
            },
        ],
    )
    return table_of(experiment, cells_from(experiment, [ended(trial, [0.5, 0.99]) for trial in experiment.trials]))


def test_a_second_source_is_named_below_the_table() -> None:
    assert "Also published: IID, 0, 1, inf: 1,500 in Table 4." in mcmahan().notes


@pytest.mark.parametrize(
    ("source", "notes"),
    [
        ("Table 3", ["Published: A paper, Table 3."]),
        ("another one's code", ["After: A paper, Table 3.", "Published: another one's code."]),
    ],
)
def test_where_values_were_published_is_said(source: str, notes: list[str]) -> None:
    tables = DIGITS | {
        "experiment": {"source": "A paper, Table 3"},
        "grid": {"method.lr": [0.1, 0.5]},
        "published": [{"source": source, "cell": {"lr": 0.1}, "value": 0.9}],
    }
    read = fedquilt.experiment(tables)
    said = table_of(read, cells_from(read, [ended(trial, [0.5]) for trial in read.trials])).notes
    assert [note for note in said if note.startswith(("Published", "After"))] == notes


def test_latex_with_several_axes_of_rows_and_columns() -> None:
    rows = check_latex(mcmahan().to_latex())
    assert rows[0][2:] == ["IID"] * 4 + ["Non-IID"] * 4
    assert rows[3][:4] == ["0", "1", r"2.0 (1.0$\times$)", "1,455"]
    assert rows[4][:2] == ["", "5"], "a heading stands once"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no LaTeX (Debian: texlive-latex-recommended)")
def test_latex_compiles(tmp_path: Path) -> None:
    names = ["[a]", "*b", "--set", "50% of #1 & {x}_y^z~", "C:\\tmp", "naïve n\u0303", "“q” ‘s’ …"]
    names.append("η ± ∞ † ‡ ≤ ≠ ∑ ∇ ∂ ℓ₂ 10⁻³ √ →")
    experiment, cells = wei()
    tables = [table_of(experiment, cells).to_latex(), mcmahan().to_latex()]
    tables.append(TextTable("runs", "Runs", ("[run", "*best"), tuple((name, name) for name in names)).latex())
    lines = [r"\documentclass{article}", r"\usepackage{booktabs}", r"\begin{document}", *tables, r"\end{document}"]
    (tmp_path / "all.tex").write_text("\n".join(lines), encoding="utf-8")
    words = ["pdflatex", "-interaction=batchmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    log = (tmp_path / "all.log").read_text(encoding="latin-1")
    assert done.returncode == 0, [line for line in log.splitlines() if line.startswith("!")]
    assert "Missing character" not in log


@pytest.mark.parametrize("text", ["a & b", "50%", r"\textbf{a", r"\unknown{}", "a_b", "∞", "[a]", "*a"])
def test_the_strict_reader_can_fail(text: str) -> None:
    check_latex("\\begin{tabular}{l}\nfine \\\\\n\\end{tabular}")
    with pytest.raises(LatexError):
        check_latex(f"\\begin{{tabular}}{{l}}\n{text} \\\\\n\\end{{tabular}}")


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="ascii") | st.sampled_from("αμ∞±×−–≤é"), max_size=30))
def test_any_text_is_escaped(text: str) -> None:
    plain = "".join(each if each.isprintable() else " " for each in text)
    check_latex(rf"\begin{{tabular}}{{l}}{chr(10)}{escaped(plain)} \\{chr(10)}\end{{tabular}}")


def test_every_ratio_is_explained() -> None:
    fewer = {"name": "rounds_to", "target": 0.5, "baseline": {"method": "A"}}
    as_many = {"name": "rounds_to", "target": 0.6, "baseline": {"metric": "rounds to 50%"}, "ratio": "times"}
    methods = {"method": {"A": {}, "B": {"method": {"epochs": 2}}}}
    both = load(case=methods, metric=[fewer, as_many])
    cells = [replace(cell, ratio=2.0) for cell in cells_from(both, [])]
    assert table_of(both, cells).notes[-2] == (
        "In parentheses: how many times fewer than for method = A (rounds to 50%); "
        "how many times as many as for rounds to 50% (rounds to 60%)."
    )
    one = load(case=methods, metric=fewer)
    cells = [replace(cell, ratio=2.0) for cell in cells_from(one, [])]
    assert table_of(one, cells).notes[-2] == "In parentheses: how many times fewer than for method = A."
    assert not any("In parentheses" in note for note in table_of(one, cells_from(one, [])).notes)


def test_values_of_another_scale_are_not_compared() -> None:
    tables = {
        "grid": {"method.lr": [0.1, 0.5, 0.9]},
        "published": [{"source": "T", "cell": {"lr": 0.1}, "value": 0.9}],
        "scale": {"small": {"run": {"rounds": 1}}},
    }
    for scale, difference_of, note in [
        (None, " −40.00 |", None),
        ("small", "", "Ours at the scale small; published values are of the full scale, and no difference is shown."),
    ]:
        read = fedquilt.experiment(DIGITS | tables, scale=scale)
        first, second, third = read.trials
        failed = Outcome(third, Path(), "failed", History([]), "no data")
        waiting = Outcome(second, Path(), "not run", History([]), NOT_RUN)
        table = table_of(read, cells_from(read, [ended(first, [0.5]), waiting, failed]))
        lines = table.to_markdown().splitlines()
        assert [line for line in lines if line.startswith("| 0.")] == [
            f"| 0.1 | 50.00 | 90 |{difference_of}",
            f"| 0.5 | not run |  |{'' if note else '  |'}",
            f"| 0.9 | no result |  |{'' if note else '  |'}",
        ]
        assert ("differ by more" in shaped_html(table)) == (note is None)
        check_latex(table.to_latex())
        assert note is None or note in table.notes


def test_cells_of_a_relative_metric_say_that_they_were_not_run() -> None:
    methods = {"method": {"A": {}, "B": {"method": {"epochs": 2}}}}
    read = load(case=methods, metric={"name": "best", "relative_to": {"method": "A"}})
    waiting = [Outcome(trial, Path(), "not run", History([]), NOT_RUN) for trial in read.trials]
    assert [ours(cell) for cell in cells_from(read, waiting)] == ["not run", "not run"]


def test_a_table_of_one_cell_says_what_is_missing() -> None:
    experiment = load(repeat={"run.seed": [1, 2]})
    assert table_of(experiment, cells_from(experiment, [])).notes[-1] == "Not complete: was left out with --only."


def test_small_costs_keep_their_spread() -> None:
    experiment = load(grid={"method.batch": [10]}, repeat={"run.seed": [1, 2]}, metric={"name": "bytes"})
    spent = {1: 170_000, 2: 200_000}
    outcomes = [
        ended(trial, [0.5], bytes_up=[spent[trial.repeated["run.seed"]]], bytes_down=[0]) for trial in experiment.trials
    ]
    assert "0.18 ± 0.02" in table_of(experiment, cells_from(experiment, outcomes)).to_markdown()


def test_it_shows_itself_in_a_notebook() -> None:
    experiment, cells = wei()
    shown = table_of(experiment, cells)._repr_html_()
    assert '<th scope="row">digits_2 &amp; more</th>' in shown
    assert '<div class="ours">83.89 ± 1.76</div><div class="published">84.29 ± 0.06 in Table 3</div>' in shown
    assert "<b>89.87 ± 2.20</b>" in shown
    assert "underlined: not significantly worse than it (paired t-test, 95%)." in shown


def test_csv_has_a_line_a_cell_with_all_digits() -> None:
    experiment, cells = wei()
    rows = list(csv.DictReader(io.StringIO(table_of(experiment, cells).to_csv())))
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
    expected = pandas.read_csv(io.StringIO(table_of(experiment, cells).to_csv()))
    assert frame.columns.tolist() == expected.columns.tolist()
    assert frame.value.tolist() == [cell.value for cell in cells]
    assert frame.pivot(index="data", columns="method", values="value").loc["digits", "FedAvg"] == cells[0].value


def test_a_problem_of_all_metrics_is_said_once() -> None:
    methods = {"method": {"A": {}, "B": {"method": {"epochs": 2}}}}
    read = load(case=methods, metric=[{"name": "best"}, {"name": "last"}])
    gone = [Outcome(trial, Path(), "diverged", History([]), "diverged") for trial in read.trials]
    cells = cells_from(read, gone)
    (said,) = [note for note in table_of(read, cells).notes if note.startswith("Not complete")]
    assert said.count("; ") == 1
    assert "accuracy" not in said
    apart = [replace(cells[0], problem="something else"), *cells[1:]]
    (said,) = [note for note in table_of(read, apart).notes if note.startswith("Not complete")]
    assert said.startswith("Not complete: A, best accuracy: something else; A, last accuracy: ")
