"""The tables of what was measured, and their place in README.md. Run, it writes the tables and the chart anew."""

from __future__ import annotations

from pathlib import Path

from chart import draw
from findings import (
    DEFAULTS,
    GOALS,
    MEMORY,
    OURS,
    START_UP,
    Found,
    Row,
    ahead,
    keep,
    kept,
    measured,
    of,
    ratio,
    seconds,
)
from wholes import Whole, draw_wholes, kept_wholes, whole_table

__all__ = ["keep", "programs", "publish"]

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- the tables begin -->", "<!-- the tables end -->"
WHOLE = "<!-- whole runs begin -->", "<!-- whole runs end -->"


def programs(results: dict[str, Found]) -> str:
    """Tell of every program, the fastest first."""
    lines = [
        "| work | program | s a round | ÷ fedquilt | start-up, s | memory, MB | lines | model differs by | ÷ its move |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for workload, found in results.items():
        ours = of(found, OURS)
        lines += [
            f"| {workload.upper()} | {row['program']} | {_figures(row, ours, found)} |" for row in measured(found)
        ]
        for row in found["rows"]:
            if "skipped" in row:
                lines.append(
                    f"| {workload.upper()} | {row['program']} | skipped: {_cell(row['skipped'])} | | | | | | |"
                )
    return "\n".join(lines)


def _figures(row: Row, ours: Row | None, found: Found) -> str:
    figures = (
        f"{seconds(row):.3g}",
        f"{ratio(row, ours):.2f}" if ours else "",
        f"{row['start_up']:.1f}",
        f"{row['memory_mb']}",
        f"{row['lines']}",
        f"{row['apart']:.0e}",
        f"{row['apart'] / found['moved']:.0e}" if "moved" in found else "",
    )
    return " | ".join(figures)


def _cell(text: str) -> str:
    return text.replace("|", "/")


def goals(results: dict[str, Found]) -> str:
    """Hold fedquilt's figures against the goals."""
    lines = [
        "| work | times the plain loop's speed | goal | | times the fastest peer's | goal | | with defaults: plain, peer "
        f"| start-up without compiling, s (goal {START_UP:g}) | memory, MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for workload, goal in GOALS.items():
        found = results.get(workload, {"rows": []})
        ours, defaults = of(found, OURS), of(found, DEFAULTS)
        if ours is None:
            lines.append(f"| {workload.upper()} | not measured | {goal.plain:g} | | | {goal.peer:g} | | | | |")
            continue
        cells = [
            *_held(ahead(found, ours, peers=False), goal.plain),
            *_held(ahead(found, ours, peers=True), goal.peer),
            ", ".join(_times(ahead(found, defaults, peers)) for peers in (False, True)) if defaults else "not measured",
            _start_up([row for row in (ours, defaults) if row]),
            _memory(ours["memory_mb"], MEMORY.get(workload)),
        ]
        lines.append(f"| {workload.upper()} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _times(found: tuple[float, str] | None) -> str:
    return f"{found[0]:.2f} ({found[1]})" if found else "not measured"


def _held(found: tuple[float, str] | None, goal: float) -> tuple[str, str, str]:
    return _times(found), f"{goal:g}", _verdict(found[0] >= goal) if found else ""


def _verdict(reached: bool) -> str:
    return "reached" if reached else "**not reached**"


def _start_up(rows: list[Row]) -> str:
    eager = [row["start_up"] for row in rows if row.get("about", "").endswith("eager")]
    return f"{max(eager):.1f}, {_verdict(max(eager) <= START_UP)}" if eager else "not measured"


def _memory(megabytes: float, goal: float | None) -> str:
    return f"{megabytes}, {_verdict(megabytes <= goal)} (goal {goal:g})" if goal else f"{megabytes}"


def conditions(results: dict[str, Found]) -> str:
    """Say of which commit, when, on what and how each workload was measured, and what was chosen for fedquilt."""
    lines = []
    for workload, found in results.items():
        commit = f"commit {found['commit']}" if "commit" in found else "commit not recorded"
        lines.append(f"- {workload.upper()}: {commit}, {found['when']}, `{found['command']}`; {found['machine']}")
        lines += [f"  - {row['program']}: {row['about']}" for row in found["rows"] if "about" in row]
    return "\n".join(lines)


def summary(results: dict[str, Found]) -> str:
    """Write everything as Markdown."""
    return f"{conditions(results)}\n\n{goals(results)}\n\n{programs(results)}"


def written(text: str, results: dict[str, Found], wholes: list[Whole]) -> str:
    """Return a README's text with the tables put in."""
    for begin, end, table in ((*WHOLE, whole_table(wholes)), (BEGIN, END, summary(results))):
        if begin in text:
            before, rest = text.split(begin)
            text = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    return text


def publish(folder: Path) -> None:
    """Draw the chart of a folder's results, and put the tables into its README.md."""
    results, wholes = kept(folder), kept_wholes(folder)
    draw(results, folder / "results.png")
    draw_wholes(wholes, folder / "whole.png")
    readme = folder / "README.md"
    places = "\n".join([*WHOLE, "", BEGIN, END])
    text = readme.read_text() if readme.exists() else f"{places}\n\n![Seconds a round](results.png)\n"
    readme.write_text(written(text, results, wholes))


if __name__ == "__main__":
    publish(HERE)
