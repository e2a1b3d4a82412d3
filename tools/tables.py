"""Writes the tables and lists of names in README.md and docs, or says which are stale.

    python tools/tables.py --write
    python tools/tables.py --check

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`. Names, summaries and papers are those of the
docstrings, as `fedquilt list` shows them; a method's title, and what it changes, are those of its page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import generated

from fedquilt.base import registry

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "methods"
FILES = (ROOT / "README.md", PAGES / "index.md", ROOT / "docs" / "papers.md")
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
WITH_PAGES = (registry.methods, registry.wrappers, registry.simulations)
IN_A_ROUND = ["clients' work", "clients' loss", "clients' steps", "mean", "server's step", "personal models", "test"]
"""What wrappers change, in the order in which a round comes to it."""


@dataclass(frozen=True)
class Page:
    """The page of one or more methods: its file, its title, and what they change."""

    file: str
    title: str
    changes: str


def pages() -> dict[str, Page]:
    """Return the page of every method, wrapper and simulation that has one."""
    found = {}
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        title, _, names = text.split("\n", 1)[0].removeprefix("# ").partition(": `")
        changes = re.search(r"^Changes: (.+)\.$", text, re.MULTILINE)
        for name in names.strip("`").split("`, `"):
            found[name] = Page(path.name, title, changes[1] if changes else "")
    return found


def papers(summary: str) -> list[str]:
    """Return the papers that a summary names in brackets.

    >>> papers("Draw from Dir(α·p) (Hsu 2019, 2020)."), papers("Features (Sandler 2018; Chang and Lin 2011).")
    (['Hsu 2019', 'Hsu 2020'], ['Sandler 2018', 'Chang and Lin 2011'])
    """
    found = []
    for inside in re.findall(r"\(([^()]*\d{4}[^()]*)\)", summary):
        for who, years in re.findall(r"([A-Z]\w+(?: and [A-Z]\w+)?) (\d{4}(?:, \d{4})*)", inside):
            found += [f"{who} {year}" for year in years.split(", ")]
    return found


def table(header: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown, with an empty line around it."""
    lines = [header, "|" + "---|" * (header.count("|") - 1)]
    return "\n".join(["", *lines, *("| " + " | ".join(row) + " |" for row in rows), "", ""])


def contents() -> str:
    """Everything that a spec can name, for the README."""
    known, rows = pages(), []
    for chosen in registry.KINDS.values():
        kind = chosen.kind
        for name in chosen:
            linked = f"[`{name}`](docs/methods/{known[name].file})" if chosen in WITH_PAGES else f"`{name}`"
            rows.append((kind, linked, chosen.summary(name)))
            kind = ""
    return table("| kind | name | what it is |", rows)


def methods() -> str:
    """Every method, wrapper and simulation with its page."""
    known, rows = pages(), []
    for chosen in WITH_PAGES:
        for name in sorted(chosen, key=lambda name: (place(known[name].changes), name)):
            page, summary = known[name], chosen.summary(name)
            cited = papers(summary)
            said = re.sub(rf" \([^()]*{cited[-1][-4:]}[^()]*\)", "", summary) if cited else summary
            changed = page.changes or chosen.kind
            rows.append((f"`{name}`", changed, said, ", ".join(cited) or "–", f"[{page.title}]({page.file})"))
    return table("| name | changes | in one sentence | paper | page |", rows)


def place(changes: str) -> int:
    """Return where in a round a wrapper belongs; the last place where it is not known."""
    return IN_A_ROUND.index(changes) if changes in IN_A_ROUND else len(IN_A_ROUND)


def cited() -> str:
    """Which functions name which paper."""
    found: dict[str, list[str]] = {}
    for chosen in registry.KINDS.values():
        for name in chosen:
            for paper in papers(chosen.summary(name)):
                found.setdefault(paper, []).append(f"`{name}`")
    return "\n".join(["", *(f"- {paper}: {', '.join(names)}" for paper, names in sorted(found.items())), "", ""])


TABLES = {"contents": contents, "methods": methods, "cited": cited}


def written() -> dict[Path, str]:
    """Return the text of every file with its tables as they should be."""
    return {
        path: MARKED.sub(lambda mark: mark[1] + TABLES[mark[2]]() + mark[3], path.read_text(encoding="utf-8"))
        for path in FILES
    }


if __name__ == "__main__":
    sys.exit(generated.main(__doc__, written()))
