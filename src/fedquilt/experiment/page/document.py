"""The page: one HTML file with its data, its styles and the programs that draw it; it asks the network for nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import fedquilt
from fedquilt.experiment.page.figure import Figure, vegalite_version
from fedquilt.experiment.page.part import Detail, Part
from fedquilt.experiment.page.table import TextTable
from fedquilt.experiment.results.shaped import shaped_html

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src {connect}; base-uri 'none'; form-action 'none'"
)
"""What a browser lets the page do. Vega compiles its expressions, hence eval; nothing is loaded from anywhere."""

FORMATS = {".md": "Markdown", ".csv": "CSV", ".tex": "LaTeX"}

FOLDED = 24
"""Rows of a table that are shown at once; a longer one opens by a click."""


def page(parts: Sequence[Part], title: str, live: bool = False) -> str:
    """Return the page; a live one asks its own server for what is new."""
    body, figures = content(parts, title)
    style, script = _asset("page.css"), _asset("page.js")
    policy = POLICY.format(connect="'self'" if live else "'none'")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="generator" content="fedquilt {fedquilt.__version__}">',
            '<link rel="icon" href="data:,">',
            f"<title>{_text(title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            f"<body{' data-live' if live else ''}>",
            f'<main id="main">{body}</main>',
            f'<script type="application/json" id="figures">{inline_json(figures)}</script>',
            f"<script>{_vega()}</script>",
            f"<script>\n{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def content(parts: Sequence[Part], title: str) -> tuple[str, dict[str, Any]]:
    """Return what changes during runs: the body of the page, and its figures by their names."""
    figures: dict[str, Any] = {}
    sections = [f"<h1>{_text(title)}</h1>"] if len(parts) > 1 else []
    for number, part in enumerate(parts, 1):
        sections.append(_part(part, number, 2 if len(parts) > 1 else 1, figures))
    version = f"Made by fedquilt {fedquilt.__version__} from the run folders alone."
    return "\n".join([*sections, f"<footer>{_text(version)}</footer>"]), figures


def inline_json(value: object) -> str:
    """Write JSON that can stand in a script of a page, whatever texts it holds.

    >>> inline_json({"name": "</script><!--"})
    '{"name":"\\\\u003c/script>\\\\u003c!--"}'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")


def _part(part: Part, number: int, level: int, figures: dict[str, Any]) -> str:
    pieces = [
        f'<section class="part"><h{level}>{_text(part.title)}</h{level}>',
        f'<p class="lead">{_text(part.lead)}</p>' if part.lead else "",
        shaped_html(part.result) if part.result is not None else "",
        f'<p class="fact">{_text(" ".join(part.facts))}</p>' if part.facts else "",
        _copies({FORMATS[Path(name).suffix]: text for name, text in part.files.items()}) if part.files else "",
    ]
    before = [] if part.result is not None else [_table(table, level + 1) for table in part.tables]
    pieces += before
    for figure in part.figures:
        name = f"{number}-{figure.name}"
        figures[name] = {"title": figure.title, "charts": figure.specs()}
        pieces.append(_figure(figure, name, level + 1))
    pieces += [] if before else [_table(table, level + 1) for table in part.tables]
    if part.notes:
        items = "".join(f"<li>{_text(note)}</li>" for note in part.notes)
        pieces.append(f'<h{level + 1}>Damaged files</h{level + 1}><ul class="notes">{items}</ul>')
    if part.details:
        details = "".join(_detail(detail, f"{number}-{index}") for index, detail in enumerate(part.details))
        pieces.append(f"<h{level + 1}>How each was made</h{level + 1}>{details}")
    return "\n".join(piece for piece in [*pieces, "</section>"] if piece)


def _figure(figure: Figure, name: str, level: int) -> str:
    return (
        f'<figure class="figure" data-figure="{_text(name)}"><h{level}>{_text(figure.title)}</h{level}>'
        '<div class="controls"></div><div class="legend"></div><div class="chart"></div>'
        f"<figcaption>{_text(figure.caption)}</figcaption></figure>"
    )


def _table(table: TextTable, level: int) -> str:
    shown = table.without_empty()
    kinds = [
        "" if all(_is_number(row[index]) for row in shown.rows) else ' class="words"'
        for index in range(len(shown.header))
    ]
    head = "".join(f'<th scope="col"{kind}>{_text(cell)}</th>' for cell, kind in zip(shown.header, kinds, strict=True))
    rows = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>'
        + "".join(f"<td{kind}>{_text(cell)}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True))
        + "</tr>"
        for row in shown.rows
    )
    caption = f'<p class="caption">{_text(table.caption)}</p>' if table.caption else ""
    written = {"Markdown": table.markdown(), "CSV": table.csv(), "LaTeX": table.latex()}
    whole = (
        f'<div class="scroll"><table class="plain" data-table="{_text(table.name)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{caption}{_copies(written)}"
    )
    if len(shown.rows) > FOLDED:
        title = f"{table.title} ({len(shown.rows):,})"
        return (
            f'<details class="table" id="table-{_text(table.name)}"><summary>{_text(title)}</summary>{whole}</details>'
        )
    return f"<h{level}>{_text(table.title)}</h{level}>{whole}"


def _copies(written: dict[str, str]) -> str:
    """Return buttons that copy a table as Markdown, CSV or LaTeX."""
    buttons = "".join(
        f'<button type="button" data-copy="{_text(text)}">{_text(name)}</button>' for name, text in written.items()
    )
    return f'<p class="copies">Copy the table as {buttons}</p>'


def _detail(detail: Detail, name: str) -> str:
    inner = "".join(_detail(run, f"{name}-{index}") for index, run in enumerate(detail.runs))
    facts = "".join(f"<dt>{_text(key)}</dt><dd>{_text(value)}</dd>" for key, value in detail.facts.items())
    command = f'<pre class="command"><code>{_text(detail.command)}</code></pre>' if detail.command else ""
    spec = f'<pre class="spec"><code>{_text(detail.spec)}</code></pre>' if detail.spec else ""
    body = f"{command}<dl>{facts}</dl>{spec}{inner}"
    return f'<details id="detail-{name}"><summary>{_text(detail.name)}</summary>{body}</details>'


def _is_number(text: str) -> bool:
    """Say whether a cell is a number, or stands for one, so that it goes to the right."""
    return text in ("", "–", "not reached", "not run", "no result") or any(
        character.isdigit() for character in text[:4]
    )


def _text(text: str) -> str:
    return html.escape(text, quote=True)


@cache
def _asset(name: str) -> str:
    return (files("fedquilt.experiment.page") / name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed in one script, which vl-convert brings along."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=vegalite_version())).replace(
        "</script", "<\\/script"
    )
