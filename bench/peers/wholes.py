"""What whole.py has measured: kept in results/whole.json, and told as a table and a chart."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

OURS, COLD, WARM = "fedquilt", "cold", "warm"
CACHES = (COLD, WARM)
SHORT, LONG = (10, 100, 1000), (3, 30)
LENGTHS = {"w1": SHORT, "w2": LONG, "w3": SHORT, "w4": LONG, "w5": LONG, "w6": SHORT, "w7": SHORT}
"""Rounds of the workloads that are run as a whole; of the others, rounds are measured by run.py alone."""
STOPPED = "more than this: the others"
CLOSE = 1.1
"""Within so much of the first, a cold cache is good enough."""


@dataclass(frozen=True)
class Whole:
    """A whole run: its seconds from the start of the process, or why there are none (`out`)."""

    work: str
    rounds: int
    program: str
    cache: str
    seconds: float
    out: str
    about: str
    commit: str
    machine: str
    load: float
    """The machine's load average when it began."""


def kept_wholes(folder: Path) -> list[Whole]:
    """Read what was measured."""
    file = folder / "results" / "whole.json"
    return [Whole(**each) for each in json.loads(file.read_text())] if file.exists() else []


def keep_wholes(found: Iterable[Whole], folder: Path) -> None:
    """Write what was measured, a run a line."""
    (folder / "results").mkdir(parents=True, exist_ok=True)
    lines = ",\n ".join(json.dumps(asdict(each)) for each in found)
    (folder / "results" / "whole.json").write_text(f"[\n {lines}\n]\n")


def medians(found: Iterable[Whole]) -> dict[tuple[str, int, str], dict[str, float]]:
    """Return every program's median seconds, by workload, length and cache; others than fedquilt have no cache."""
    every: dict[tuple[str, int, str], dict[str, list[float]]] = {}
    for each in found:
        for cache in [each.cache] if each.cache else CACHES:
            if not each.out:
                every.setdefault((each.work, each.rounds, cache), {}).setdefault(each.program, []).append(each.seconds)
    return {cell: {name: statistics.median(all_) for name, all_ in of.items()} for cell, of in sorted(every.items())}


def whole_table(found: list[Whole]) -> str:
    """Tell who is first in every cell, and how long everybody takes."""
    if not found:
        return "Not measured yet: `python bench/peers/whole.py`."
    late = {(each.work, each.rounds, each.program): _late(each) for each in found if each.out}
    lines = [
        "| work | rounds | cache | fedquilt, s | the fastest other, s | ÷ fedquilt | | all others, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (work, rounds, cache), of in medians(found).items():
        others = sorted((seconds, name) for name, seconds in of.items() if name != OURS)
        slow = _grouped(
            {name: out for (w, r, name), out in late.items() if (w, r) == (work, rounds) and name not in of}
        )
        told = "; ".join([*(f"{name} {seconds:.1f}" for seconds, name in others[1:]), *slow])
        if OURS not in of:
            continue
        first = f"{others[0][0]:.1f} ({others[0][1]})" if others else "none in time"
        ratio = others[0][0] / of[OURS] if others else float("inf")
        good = ratio >= 1 or (cache == COLD and ratio * CLOSE >= 1)
        verdict = "first" if ratio >= 1 else "within 10%" if good else "**not first**"
        shown = f"{ratio:.2f}" if others else ""
        lines.append(
            f"| {work.upper()} | {rounds:,} | {cache} | {of[OURS]:.1f} | {first} | {shown} | {verdict} | {told} |"
        )
    about = sorted({f"commit {each.commit}; {each.machine}" for each in found if each.program == OURS})
    loads = [each.load for each in found]
    told = f"- load when runs began: {min(loads):.1f} to {max(loads):.1f}, median {statistics.median(loads):.1f}"
    return "\n".join([*lines, "", *(f"- {each}" for each in about), told])


def _late(each: Whole) -> str:
    """Say why a program has no time; of one that was stopped, the whole seconds that it had run for."""
    return f"more than {int(each.seconds)} s" if each.out.startswith("more than") else each.out


def _grouped(late: dict[str, str]) -> list[str]:
    """Say of programs without a time why that is, once for all with the same reason."""
    return [
        f"{out}: {', '.join(n.replace(', ', ' ') for n in late if late[n] == out)}"
        for out in sorted(set(late.values()))
    ]


def draw_wholes(found: list[Whole], path: Path) -> None:
    """Draw seconds against rounds, a panel a workload, fedquilt in colour."""
    import altair as alt  # noqa: PLC0415
    import vl_convert  # noqa: PLC0415

    rows = [
        {
            "work": work.upper(),
            "rounds": rounds,
            "program": f"fedquilt, {cache} cache" if name == OURS else name,
            "seconds": s,
        }
        for (work, rounds, cache), of in medians(found).items()
        for name, s in of.items()
        if name == OURS or cache == WARM
    ]
    if not rows:
        return
    stopped: dict[tuple[str, int], float] = {}
    for each in found:
        if each.out.startswith("more than"):
            cell = each.work, each.rounds
            stopped[cell] = min(each.seconds, stopped.get(cell, each.seconds))
    rows += [{"work": w.upper(), "rounds": r, "program": STOPPED, "seconds": s} for (w, r), s in stopped.items()]
    ours = {f"fedquilt, {WARM} cache": "#c2410c", f"fedquilt, {COLD} cache": "#f59e0b"}
    names = [*ours, *sorted({row["program"] for row in rows} - set(ours))]
    greys = [
        "#0f172a",
        "#334155",
        "#475569",
        "#64748b",
        "#94a3b8",
        "#7c8aa0",
        "#a3b1c6",
        "#b6c2d2",
        "#8fa3bf",
        "#cbd5e1",
    ]
    scale = alt.Scale(domain=names, range=[*ours.values(), *(greys * 3)[: len(names) - 2]])
    base = alt.Chart().encode(  # the data are the facets': each panel shows its own workload
        x=alt.X("rounds:Q", title="rounds", scale=alt.Scale(type="log")).axis(
            values=[3, 10, 30, 100, 1000], grid=False
        ),
        y=alt.Y("seconds:Q", title="seconds from the start (log scale)", scale=alt.Scale(type="log")).axis(format="~g"),
        color=alt.Color("program:N", scale=scale, title=None),
    )
    ended, not_ended = (base.transform_filter(f"datum.program {sign} '{STOPPED}'") for sign in ("!=", "=="))
    points = ended.mark_circle(size=40, opacity=1), not_ended.mark_point(shape="triangle-up", size=60)
    chart = alt.layer(ended.mark_line(), *points, data=alt.InlineData(values=rows))
    chart = (
        chart.properties(width=230, height=180)
        .facet(alt.Facet("work:N", title=None), columns=3)
        .resolve_scale(x="independent", y="independent")
    )
    path.write_bytes(vl_convert.vegalite_to_png(chart.to_dict(), scale=1.5))
