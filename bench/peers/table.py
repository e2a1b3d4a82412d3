"""The tables of what was measured, and their place in README.md. Run, it writes the tables and the chart anew."""

from __future__ import annotations

from pathlib import Path

from chart import draw
from findings import (
    DEFAULTS,
    GOALS,
    LIMITS,
    MEMORY,
    MORE,
    OURS,
    PEAK_ROWS,
    SHARES,
    SOON,
    START_UP,
    Found,
    Row,
    ahead,
    keep,
    kept,
    kept_rows,
    measured,
    of,
    ratio,
    seconds,
)
from wholes import draw_wholes, kept_wholes, whole_table
from work import WORKLOADS

__all__ = ["keep", "programs", "publish"]

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent.parent / "docs" / "fast.md"
BEGIN, END = "<!-- the tables begin -->", "<!-- the tables end -->"
ROOFLINE = "<!-- the roofline begins -->", "<!-- the roofline ends -->"
SHORT = "<!-- speeds begin -->", "<!-- speeds end -->"
"""In docs/fast.md."""
WHOLE = "<!-- whole runs begin -->", "<!-- whole runs end -->"
PEAKS = "<!-- memory begins -->", "<!-- memory ends -->"
WORKS = "<!-- workloads begin -->", "<!-- workloads end -->"


def works() -> str:
    """Say what the workloads are."""
    return "\n".join(f"- **{name.upper()}**: {work.about}" for name, work in WORKLOADS.items())


def programs(results: dict[str, Found]) -> str:
    """Tell of every program, the fastest first."""
    lines = [
        "| work | program | s a round | ÷ fedquilt | start-up, s | memory, MB | lines | model differs by | ÷ its move |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    every = {_peer(row) for found in results.values() for row in found["rows"]}
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
        missing = sorted(every - {_peer(row) for row in found["rows"]})
        if missing:
            lines.append(f"| {workload.upper()} | {', '.join(missing)} | not run | | | | | | |")
    return "\n".join(lines)


def _peer(row: Row) -> str:
    return row["program"].partition(",")[0]


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
        f"| start-up with defaults and a warm cache, s (goal {START_UP:g} for {', '.join(SOON).upper()}) | memory, MB |",
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
            _start_up(defaults, workload in SOON),
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


def _start_up(defaults: Row | None, goal: bool) -> str:
    """Tell of the start-up of the program without an engine: the one before it has left compiled code in the cache."""
    if defaults is None:
        return "not measured"
    return f"{defaults['start_up']:.2f}" + (f", {_verdict(defaults['start_up'] <= START_UP)}" if goal else "")


def _memory(megabytes: float, goal: float | None) -> str:
    return f"{megabytes}, {_verdict(megabytes <= goal)} (goal {goal:g})" if goal else f"{megabytes}"


def short(results: dict[str, Found]) -> str:
    """Tell, a line a workload, how fast a run is that chooses nothing."""
    lines = [
        "| workload | s a round | times the plain loop's speed | times the fastest other framework's |",
        "|---|---|---|---|",
    ]
    for name, found in results.items():
        ours = of(found, DEFAULTS)
        if ours:
            times = " | ".join(_times(ahead(found, ours, peers)) for peers in (False, True))
            lines.append(f"| {name.upper()}: {WORKLOADS[name].about} | {seconds(ours):.3g} | {times} |")
    commits = sorted({found["commit"] for found in results.values() if "commit" in found})
    return "\n".join([*lines, "", f"Measured at commit {', '.join(commits)}."])


def roofline(limits: dict[str, dict], results: dict[str, Found]) -> str:
    """Tell how near rounds come to what the machine can do, and how much faster than the plain loop anybody could be."""
    lines = [
        "| work | GFLOP | GB | attainable, s | by | taken, s | share | goal "
        "| | times the plain loop's speed | the most possible | share by definition |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, goal in SHARES.items():
        if name not in limits:
            lines.append(f"| {name.upper()} | not measured | | | | | | {goal}% | | | | |")
            continue
        row, found = limits[name], results.get(name, {"rows": []})
        share, ours = row["attainable"] / row["taken"], of(found, OURS)
        times = ahead(found, ours, peers=False) if ours else None
        ratios = ("", "")
        if times:
            most = seconds(of(found, times[1])) / row["attainable"]
            ratios = f"{times[0]:.2f}", f"{most:.1f}"
        counted = f"{row['operations'] / 1e9:.1f} | {row['bytes'] / 1e9:.2f} | {row['attainable']:.4f} | {row['bound']}"
        by_definition = (row["operations"] + row.get("spared", 0.0)) / row["operations_a_second"] / row["taken"]
        plain = f"{100 * by_definition:.0f}%, {_verdict(100 * by_definition >= goal)}" if row.get("spared") else ""
        reached = f"{100 * share:.0f}% | {goal}% | {_verdict(100 * share >= goal)}"
        lines.append(
            f"| {name.upper()} | {counted} | {row['taken']:.4f} | {reached} | {' | '.join(ratios)} | {plain} |"
        )
    about = {f"commit {row['commit']}; {row['machine']}" for row in limits.values()}
    loads = [row["load"] for row in limits.values()]
    said = [f"- {each}" for each in sorted(about)]
    said += [f"- load before the rounds: {min(loads)} to {max(loads)}"] if loads else []
    return "\n".join([*lines, "", *said])


def memory(found: dict[str, dict]) -> str:
    """Tell how much memory runs take that choose how they compute, beside the same runs computed eagerly."""
    if not found:
        return "Not measured yet: `python bench/peers/memory.py`."
    lines = [
        f"| work | as chosen, MB | eager, MB | ÷ eager | goal: {MORE:g} at most | how it was computed |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        share = row["chosen_mb"] / row["eager_mb"]
        told = f"{share:.2f} | {_verdict(share <= MORE)} | {row['about'].partition(': ')[2]}"
        lines.append(f"| {name.upper()} | {row['chosen_mb']} | {row['eager_mb']} | {told} |")
    about = sorted({f"- commit {row['commit']}; {row['machine']}" for row in found.values()})
    return "\n".join([*lines, "", *about])


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


def written(text: str, folder: Path) -> str:
    """Return a page's text with the tables of a folder's results put in."""
    results = kept(folder)
    tables = (
        (*WORKS, works()),
        (*WHOLE, whole_table(kept_wholes(folder))),
        (*ROOFLINE, roofline(kept_rows(folder, LIMITS), results)),
        (*PEAKS, memory(kept_rows(folder, PEAK_ROWS))),
        (*SHORT, short(results)),
        (BEGIN, END, summary(results)),
    )
    for begin, end, table in tables:
        if begin in text:
            before, rest = text.split(begin)
            text = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    return text


def publish(folder: Path) -> None:
    """Draw the chart of a folder's results, and put the tables into its README.md."""
    draw(kept(folder), folder / "results.png")
    draw_wholes(kept_wholes(folder), folder / "whole.png")
    readme = folder / "README.md"
    places = "\n".join([*WHOLE, "", BEGIN, END])
    text = readme.read_text() if readme.exists() else f"{places}\n\n![Seconds a round](results.png)\n"
    readme.write_text(written(text, folder))
    if folder == HERE:
        DOCS.write_text(written(DOCS.read_text(), folder))


if __name__ == "__main__":
    publish(HERE)
