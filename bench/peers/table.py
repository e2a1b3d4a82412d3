"""The table of results.json, and its place in README.md. Run, it writes the table and the chart anew."""

from __future__ import annotations

import json
from pathlib import Path

from chart import draw

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- the table begins -->", "<!-- the table ends -->"

Results = dict[str, dict]
"""By workload: what was measured ("rows"), where and how."""


def table(results: Results) -> str:
    """Write the results as Markdown, the fastest first."""
    lines = [
        "| work | program | s a round | ÷ fedquilt | start-up, s | memory, MB | lines | model differs by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for workload, found in sorted(results.items()):
        for r in sorted(found["rows"], key=lambda r: r.get("seconds", float("inf"))):
            lines.append(f"| {workload.upper()} | {r['program']} | {_figures(r)} |")
    return "\n".join(lines)


def _figures(r: dict) -> str:
    if "skipped" in r:
        return f"skipped: {r['skipped'].replace('|', '/')} | | | | |"
    figures = (
        f"{r['seconds']:.3g}",
        f"{r['to_fedquilt']:.2f}",
        f"{r['start_up']:.1f}",
        f"{r['memory_mb']:.0f}",
        f"{r['lines']}",
        f"{r['apart']:.0e}",
    )
    return " | ".join(figures)


def conditions(results: Results) -> str:
    """Say on what, when and how each workload was measured."""
    about = {}
    for workload, found in sorted(results.items()):
        about.setdefault((found["machine"], found["command"]), []).append(workload.upper())
    return "\n".join(f"- {', '.join(works)}: `{command}`; {machine}" for (machine, command), works in about.items())


def written(text: str, results: Results) -> str:
    """Return a README's text with the table and its conditions put in."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{conditions(results)}\n\n{table(results)}\n{END}{rest.split(END)[1]}"


def publish(folder: Path) -> None:
    """Draw the chart of a folder's results.json, and put the table into its README.md, if it has one."""
    results = json.loads((folder / "results.json").read_text())
    draw(results, folder / "results.png")
    readme = folder / "README.md"
    if readme.exists():
        readme.write_text(written(readme.read_text(), results))


if __name__ == "__main__":
    publish(HERE)
