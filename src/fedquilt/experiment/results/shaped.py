"""The table of an experiment in the paper's own shape, as HTML: ours beside published, coloured by how well they agree."""

from __future__ import annotations

import html
import itertools
import math

from fedquilt.experiment.design.keys import short_label
from fedquilt.experiment.design.metric import CellMetric
from fedquilt.experiment.results.cells import Cell
from fedquilt.experiment.results.table import ResultTable, heading
from fedquilt.experiment.results.written import difference, ours, published, unit_of

AGREES, NEAR, DIFFERS = "agrees", "near", "differs"

LIMITS = {AGREES: ("1 point or 2 standard deviations", "1.25"), NEAR: ("3 points or 4 standard deviations", "2")}
"""How far apart ours and a published value may be: accuracies, and factors of what was spent."""


def agreement(cell: Cell) -> str | None:
    """Say how well a cell agrees with the published value; None where there is none of its scale, or none of ours."""
    theirs = cell.published
    if theirs is None or cell.value is None or not cell.comparable:
        return None
    if theirs.beyond or cell.beyond or theirs.value is None:
        return AGREES if theirs.beyond and cell.beyond else DIFFERS
    metric, apart = cell.metric, abs(cell.value - theirs.value)
    spread = math.hypot(cell.std or 0.0, theirs.std or 0.0)
    if metric.is_cost:
        low, high = sorted((cell.value, theirs.value))
        ratio = high / low if low > 0 else math.inf
        return AGREES if ratio <= 1.25 else NEAR if ratio <= 2 else DIFFERS
    close, far = _tolerances(metric, theirs.value)
    return AGREES if apart <= max(close, 2 * spread) else NEAR if apart <= max(far, 4 * spread) else DIFFERS


def _tolerances(metric: CellMetric, value: float) -> tuple[float, float]:
    share = unit_of(metric).name == "%"
    return (0.01, 0.03) if share else (0.05 * abs(value), 0.15 * abs(value))


def shaped_html(table: ResultTable) -> str:
    """Write the table."""
    heads = len(table.row_axes)
    lines = []
    for level, axis in enumerate(table.column_axes):
        last = level == len(table.column_axes) - 1
        corner = (
            "".join(f"<th>{_text(name)}</th>" for name in table.row_axes) if last else f'<th colspan="{heads}"></th>'
        )
        if not heads:
            corner = ""
        words = []
        for case, group in itertools.groupby(table.columns, key=lambda column: column[: level + 1]):
            width = len(list(group))
            words.append(f'<th scope="col" colspan="{width}">{_text(heading(axis, case[-1]))}</th>')
        lines.append(f"<tr>{corner}{''.join(words)}</tr>")
    if not table.column_axes:
        lines.append(f"<tr>{''.join(f'<th>{_text(name)}</th>' for name in table.row_axes)}<th>ours</th></tr>")
    body = []
    above: tuple[str, ...] = ()
    for row, line in zip(table.rows, table.cells, strict=True):
        names = [
            "" if row[: index + 1] == above[: index + 1] and index < len(row) - 1 else case
            for index, case in enumerate(row)
        ]
        head = "".join(f'<th scope="row">{_text(name)}</th>' for name in names)
        body.append(f"<tr>{head}{''.join(map(_cell, line))}</tr>")
        above = row
    cells = [cell for line in table.cells for cell in line if cell is not None and cell.published is not None]
    kinds = {kind for cell in cells if (kind := agreement(cell)) is not None}
    cost = all(cell.metric.is_cost for cell in cells)
    key = "".join(
        f'<span class="{kind}">{_text(_meaning(kind, cost))}</span>'
        for kind in (AGREES, NEAR, DIFFERS)
        if kind in kinds
    )
    shown = f'<p class="caption key">Ours and published: {key}</p>' if key else ""
    return (
        f'<div class="scroll"><table class="shaped"><thead>{"".join(lines)}</thead><tbody>{"".join(body)}</tbody></table>'
        f"</div>{shown}"
    )


def _meaning(kind: str, cost: bool) -> str:
    if kind not in LIMITS:
        return "differ by more"
    within = f"a factor of {LIMITS[kind][1]}" if cost else LIMITS[kind][0]
    return f"{'agree' if kind == AGREES else 'near'}: within {within}"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    about = f' title="{_text(cell.problem)}"' if cell.problem is not None else ""
    number = _text(ours(cell))
    number = f"<b>{number}</b>" if cell.best else f"<u>{number}</u>" if cell.marked else number
    words = [f'<div class="ours">{number}</div>']
    if cell.chosen and cell.value is not None:
        words.append(f'<div class="tuned">{_text(short_label(cell.chosen))}</div>')
    if cell.published is not None:
        apart = difference(cell)
        theirs = published(cell.published, cell.metric)
        words.append(f'<div class="published">{_text(theirs)} in {_text(cell.published.source)}</div>')
        words += [f'<div class="difference">{_text(apart)}</div>'] if apart else []
    if cell.problem is not None:
        words.append('<div class="problem">not complete</div>')
    return f'<td class="{agreement(cell) or ""}"{about} data-cell="{_text("/".join(cell.key))}">{"".join(words)}</td>'


def _text(text: str) -> str:
    return html.escape(text, quote=True)
