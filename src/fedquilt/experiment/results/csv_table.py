"""A table of results as CSV: one line per cell, so that it can be read by pandas or a spreadsheet as it is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from fedquilt.experiment.design.keys import label
from fedquilt.experiment.results.cells import Cell


def records_of(axes: Sequence[str], cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Return what there is to say of each cell, by name: its case on every axis, our value and the published one."""
    return [dict(zip(axes, cell.key, strict=True)) | _record(cell) for cell in cells]


def _record(cell: Cell) -> dict[str, Any]:
    theirs = cell.published
    return {
        "shows": cell.metric.label,
        "value": cell.value,
        "std": cell.std,
        "repeats": len(cell.values),
        "not_reached": cell.beyond,
        "ratio": cell.ratio,
        "published": None if theirs is None else theirs.value,
        "published_std": None if theirs is None else theirs.std,
        "published_not_reached": None if theirs is None else theirs.beyond,
        "difference": cell.difference,
        "source": None if theirs is None else theirs.source,
        "best": cell.best,
        "not_significantly_worse": cell.marked,
        "p": cell.p,
        "tuned": label(cell.chosen) if cell.chosen else "",
        "at_edge": " ".join(cell.at_edge),
        "problem": cell.problem or "",
    }


def to_csv(axes: Sequence[str], cells: Sequence[Cell]) -> str:
    """Write the cells, one a line, with all digits; accuracies are shares, and nothing stands where nothing is known."""
    out = io.StringIO()
    records = records_of(axes, cells)
    writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({key: _safe(value) if isinstance(value, str) else value for key, value in record.items()})
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
