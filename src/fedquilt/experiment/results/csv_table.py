"""A table of results as CSV: a line a cell, so that it can be read by pandas or a spreadsheet as it is."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.keys import label
from fedquilt.experiment.results.cells import Cell

COLUMNS = (
    "shows", "value", "std", "repeats", "not_reached", "ratio", "published", "published_std", "published_not_reached",
    "difference", "source", "best", "not_significantly_worse", "tuned", "at_edge", "problem",
)  # fmt: skip


def to_csv(experiment: Experiment, cells: Sequence[Cell]) -> str:
    """Write the cells, one a line, with all digits; accuracies are shares, and nothing stands where nothing is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*experiment.key_axes, *COLUMNS])
    for cell in cells:
        theirs = cell.published
        writer.writerow(
            [
                *map(_safe, cell.key),
                cell.metric.label,
                cell.value,
                cell.std,
                len(cell.values),
                cell.beyond,
                cell.ratio,
                None if theirs is None else theirs.value,
                None if theirs is None else theirs.std,
                None if theirs is None else theirs.beyond,
                cell.difference,
                None if theirs is None else _safe(theirs.source),
                cell.best,
                cell.marked,
                _safe(label(cell.chosen) if cell.chosen else ""),
                " ".join(cell.at_edge),
                _safe(cell.problem or ""),
            ]
        )
    return out.getvalue()


def _safe(text: str) -> str:
    """Keep a spreadsheet from taking a text for a formula.

    >>> _safe("=1+1"), _safe("-0.5"), _safe("FedAvg")
    ("'=1+1", '-0.5', 'FedAvg')
    """
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return text
