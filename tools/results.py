"""Writes what was measured of the papers' experiments into their READMEs, or says which are stale.

    python tools/results.py --write
    python tools/results.py --check

Numbers come from the metrics kept in `experiments/<paper>/results` (see kept.py) and from the experiments' own files, which
have the published ones. `experiments/README.md` lists every experiment; the README of a paper has the tables, and drawings
(see drawings.py), which only `--write` makes anew. What the benchmark says goes into the package, too (see advised.py).
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import advised
import drawings
import generated
import kept
import ranking

from fedquilt.base.text import counted
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.experiment import experiment as read_experiment
from fedquilt.experiment.page.figure import Figure
from fedquilt.experiment.results.cells import Cell, cells_from
from fedquilt.experiment.results.markdown import to_markdown
from fedquilt.experiment.results.outcome import Outcome
from fedquilt.experiment.results.table import heading, table_of
from fedquilt.experiment.results.written import ours, published, unit_of

PAPERS = {
    "mcmahan-2017": "McMahan 2017",
    "hsu-2019": "Hsu 2019",
    "hsu-2020": "Hsu 2020",
    "wei-2022": "Wei 2022",
    "ozdayi-2020": "Ozdayi 2020",
    "benchmark": "which method to take",
}
MARKED = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)


@dataclass(frozen=True)
class Measured:
    """What is kept of an experiment at one scale: its table, and its cells."""

    scale: str
    title: str
    axes: tuple[str, ...]
    table: str
    cells: tuple[Cell, ...]
    figures: str
    drawn: tuple[Figure, ...]
    path: Path

    @property
    def drawings(self) -> list[Path]:
        """The files of what is drawn."""
        return drawings.paths_of(self.drawn, self.path)

    @property
    def known(self) -> list[Cell]:
        """The cells that have a value."""
        return [cell for cell in self.cells if cell.value is not None]


def files(paper: str) -> list[Path]:
    """Return a paper's experiments, in the order of its tables and figures."""
    return sorted((kept.EXPERIMENTS / paper).glob("*.toml"), key=lambda path: _place(path.stem))


def _place(stem: str) -> tuple[str, int, str]:
    found = re.fullmatch(r"(table|figure)-(\d+)(.*)", stem)
    return (found[1], int(found[2]), found[3]) if found else ("z", 0, stem)


def measured(file: Path) -> list[Measured]:
    """Compute the tables of an experiment from what is kept of it."""
    scales = [kept.FULL, *tomllib.loads(file.read_text(encoding="utf-8")).get("scale", {})]
    return [_measured(file, scale) for scale in scales if kept.kept_path(file, scale).exists()]


def _measured(file: Path, scale: str) -> Measured:
    experiment = read_experiment(file, scale=scale)
    path = kept.kept_path(file, scale)
    outcomes = kept.read_kept(experiment, path)
    cells = cells_from(experiment, outcomes)
    some = [cell for cell in cells if cell.run or cell.value is not None or cell.published is not None]
    table = to_markdown(table_of(experiment, some or cells)) + _ranks(experiment, cells, outcomes)
    usable = {outcome.trial.name for outcome in outcomes if outcome.ended}
    lines = {trial: line for trial, line in kept.read_lines(path).items() if trial in usable}
    emds = {trial: line["emd"] for trial, line in lines.items() if line.get("emd") is not None}
    drawn = tuple(drawings.drawings(file.stem, experiment, outcomes, cells, emds))
    shown = "\n".join(text for text in (figures(path, experiment), _shown(drawn, path)) if text)
    return Measured(scale, experiment.title, experiment.key_axes, table, tuple(cells), shown, drawn, path)


def _ranks(experiment: Experiment, cells: Sequence[Cell], outcomes: Sequence[Outcome]) -> str:
    """Rank the methods of the benchmark, where its table has been measured as a whole in some column."""
    if experiment.source != drawings.OWN:
        return ""
    method, setting = (experiment.key_axes.index(axis) for axis in (*experiment.rows, *experiment.columns))
    histories = {outcome.trial.name: outcome.history for outcome in outcomes if outcome.ended}
    found = ranking.ranking(cells, method, setting, histories)
    return f"\n{found}" if found else ""


def _shown(drawn: Sequence[Figure], path: Path) -> str:
    """Show drawings of what is kept, each under what it is of."""
    return "\n".join(
        f"**{figure.title}**\n\n![{figure.title}](results/{file.name})\n"
        for figure, file in zip(drawn, drawings.paths_of(drawn, path), strict=True)
    )


def figures(path: Path, experiment: Experiment) -> str:
    """Write the numbers of figures that are kept beside metrics, and show their drawings; not those of other settings."""
    numbers = path.with_suffix(".figures.json")
    found = json.loads(numbers.read_text(encoding="utf-8")) if numbers.exists() else []
    now = kept.settings_of_all(experiment) if found else ""
    lines: list[str] = []
    for number, each in enumerate(found, 1):
        files = sorted(path.parent.glob(f"{path.stem}-{number}-*")) if each["settings"] == now else []
        if files:
            lines += [*_figure(each), *(f"![{file.stem}](results/{file.name})\n" for file in files)]
    return "\n".join(lines)


def _figure(figure: dict[str, Any]) -> list[str]:
    title = f"**{figure['title']}**\n"
    if figure["name"] == "population":
        return [title]
    if figure["name"] == "features":
        head = [
            "| " + " | ".join(panel["title"] for panel in figure["panels"]) + " |",
            "|" + "---:|" * len(figure["panels"]),
        ]
        values = "| " + " | ".join(f"{panel['discrepancy']:.3f}" for panel in figure["panels"]) + " |\n"
        return [title, *head, values]
    theta, loss = figure["theta"], figure["loss"]
    middle = statistics.fmean(loss[place] for place in range(len(theta)) if abs(theta[place] - 0.5) < 0.02)
    least = min(range(len(theta)), key=lambda place: loss[place])
    head = ["| loss of the better model | of the mean of both, θ = ½ | the least on the line |", "|---:|---:|---:|"]
    return [
        title,
        *head,
        f"| {figure['best_parent']:.3f} | {middle:.3f} | {loss[least]:.3f}, at θ = {abs(theta[least]):.2f} |\n",
    ]


def command(file: Path, scale: str) -> str:
    """Return the command that runs an experiment."""
    path = file.relative_to(kept.ROOT)
    return f"fedquilt sweep {path}" + ("" if scale == kept.FULL else f" --scale {scale}")


def overview(found: dict[Path, list[Measured]]) -> str:
    """List every experiment: what was published, what was measured, at which scale, and by which command."""
    some = [[each for each in results if each.known] for results in found.values()]
    full = [each for results in some for each in results if each.scale == kept.FULL]
    whole, none = sum(len(each.known) == len(each.cells) for each in full), sum(not results for results in some)
    lines = [
        f"Of {counted(len(found), 'experiment')}, {whole} have been run at the full scale as a whole and "
        f"{len(full) - whole} in part, {len(found) - len(full) - none} at a smaller scale only, and {none} not yet.",
        "",
        "| paper | experiment | published | ours | scale | command |",
        "|---|---|---|---|---|---|",
    ]
    for file, results in found.items():
        paper, content = file.parent.name, tomllib.loads(file.read_text(encoding="utf-8"))
        about = content["experiment"]
        name = about.get("source", "").removeprefix(f"{PAPERS[paper]}, ") or "–"
        start = f"| {PAPERS[paper]} | [{name}]({paper}/{file.name}):"
        for each in (each for each in results if each.known):
            theirs, own = headline(each)
            run = f"{each.scale} | `{command(file, each.scale)}`"
            lines.append(f"{start} {each.title} | {theirs} | [{own}]({paper}/README.md) | {run} |")
        if not any(each.known for each in results):
            count = sum(_leaves(each.get("values", each.get("value"))) for each in content.get("published", ()))
            there = f"; {counted(count, 'published value')}" if count else ""
            lines.append(f"{start} {about['title']} | | not run yet{there} | | `{command(file, kept.FULL)}` |")
    return "\n".join(lines) + "\n"


def _leaves(values: object) -> int:
    """Count published values.

    >>> _leaves({"IID": {"10": 316}, "Non-IID": {"10": 3275, "∞": 4278}}), _leaves("84.29 ± 0.06")
    (3, 1)
    """
    return sum(map(_leaves, values.values())) if isinstance(values, dict) else 1


def headline(result: Measured) -> tuple[str, str]:
    """Return a published value and ours of the same cell, and how many cells were measured.

    Of several cells that have both, it is the one whose values differ most; a target that was not reached is furthest off.
    """
    both = [cell for cell in result.known if cell.published is not None]
    count = f"{len(result.known)} of {len(result.cells)} cells"
    cell = max(both, key=_apart) if both else result.known[0]
    unit = unit_of(cell.metric).name
    name = ", ".join(heading(axis, case) for axis, case in zip(result.axes, cell.key, strict=False))
    theirs = published(cell.published, cell.metric)
    theirs += " (full scale)" if theirs and not cell.comparable else ""
    return theirs, f"{count}; {name}: {ours(cell)} {unit}"


def _apart(cell: Cell) -> float:
    """Return by what share of the published value ours differs from it."""
    if cell.difference is None or cell.published is None or not cell.published.value:
        missed = cell.beyond and cell.comparable and cell.published is not None and not cell.published.beyond
        return float("inf") if missed else 0.0
    return abs(cell.difference / cell.published.value)


def tables(results: dict[Path, list[Measured]]) -> str:
    """Write the tables of a paper that were measured."""
    parts = []
    for file, found in results.items():
        for each in (each for each in found if each.known):
            scale = "" if each.scale == kept.FULL else f", scale “{each.scale}”"
            lead = f"### {file.stem}{scale}\n\n`{command(file, each.scale)}`, {len(each.known)} of {len(each.cells)} cells."
            parts.append(f"{lead}\n\n{each.table}\n{each.figures}" if each.figures else f"{lead}\n\n{each.table}")
    return "\n".join(parts) or "Nothing has been measured yet.\n"


def main() -> int:
    """Write or check the READMEs."""
    found = {paper: {file: measured(file) for file in files(paper)} for paper in PAPERS}
    texts = {
        kept.EXPERIMENTS / "README.md": overview({file: each for one in found.values() for file, each in one.items()})
    }
    texts |= {kept.EXPERIMENTS / paper / "README.md": tables(each) for paper, each in found.items()}
    written = {}
    for path, text in texts.items():
        before = path.read_text(encoding="utf-8")
        if not MARKED.search(before):
            raise SystemExit(f"{path}: has no lines <!-- results --> and <!-- end of results -->")
        written[path] = MARKED.sub(lambda match, text=text: f"{match[1]}\n{text}\n{match[2]}", before)  # type: ignore[misc]
    written[advised.PATH] = advised.benchmark(found["benchmark"].values())
    code = generated.main(__doc__, written)
    if "--write" in sys.argv:
        for each in (each for files in found.values() for results in files.values() for each in results):
            drawings.write(each.drawn, each.path)
    return code


if __name__ == "__main__":
    sys.exit(main())
