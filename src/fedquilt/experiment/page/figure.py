"""A figure: one definition, in Vega-Lite, for the page and for files.

A figure has one chart, or several of which the page shows the chosen one, such as the accuracy and the loss over rounds.
Charts are made with Altair, and written as SVG, PDF and PNG by vl-convert, which needs no browser. What the page can change
about a chart is in its `usermeta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.experiment.page.palette import line_look

if TYPE_CHECKING:
    import altair as alt

WIDTH, HEIGHT = 520, 280
"""Of a chart in a file, in pixels of 1/72 inch; the page makes it as wide as there is room."""

GREY, DARK = "#888888", "#222222"

FORMATS = ("svg", "pdf", "png")


@dataclass(frozen=True)
class Figure:
    """Charts by what they show, with a title and a caption; `name` is that of its files."""

    name: str
    title: str
    charts: Mapping[str, alt.TopLevelMixin]
    caption: str = ""

    def specs(self) -> dict[str, dict[str, Any]]:
        """Return the charts as Vega-Lite."""
        return {label: chart.to_dict() for label, chart in self.charts.items()}

    def write(self, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
        """Write every chart into a folder, in every format, and return the files."""
        files = []
        for label, chart in self.charts.items():
            name = self.name if len(self.charts) == 1 else f"{self.name}-{_file_name(label)}"
            files += [folder / f"{name}.{kind}" for kind in formats]
            spec = chart.to_dict()
            for path in files[-len(formats) :]:
                write_spec(spec, path)
        return files


def write_spec(spec: dict[str, Any], path: Path) -> None:
    """Write a chart to a file, as what its name ends with: .svg, .pdf or .png."""
    import vl_convert

    version = vegalite_version()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(spec, vl_version=version), encoding="utf-8")
    elif path.suffix == ".pdf":
        path.write_bytes(vl_convert.vegalite_to_pdf(spec, vl_version=version))
    else:
        path.write_bytes(vl_convert.vegalite_to_png(spec, vl_version=version, scale=2))


def vegalite_version() -> str:
    """Return the version of Vega-Lite to draw with: that which Altair makes charts for, or the newest there is."""
    import altair as alt
    import vl_convert

    known = vl_convert.get_vegalite_versions()
    wanted = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return wanted if wanted in known else str(known[-1])


def _file_name(label: str) -> str:
    kept = "".join(character if character.isalnum() else "-" for character in label.lower())
    return "-".join(part for part in kept.split("-") if part) or "chart"


def styled(chart: Any, title: str | None = None, about: Mapping[str, Any] | None = None) -> Any:
    """Return a chart that looks as all do; `about` says what the page can change."""
    if title is not None:
        chart = chart.properties(title=title)
    if about:
        chart = chart.properties(usermeta=dict(about))
    return (
        chart.configure(font="Arial, Liberation Sans, Helvetica, sans-serif", background="white", padding=8)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=DARK,
            titleColor=DARK,
            domainColor=GREY,
            tickColor=GREY,
            gridColor="#ebebeb",
            labelFontSize=11,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=8,
            labelOverlap="greedy",
            labelSeparation=6,
        )
        .configure_legend(
            labelColor=DARK,
            titleColor=DARK,
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
            labelLimit=0,
            symbolStrokeWidth=2,
        )
        .configure_title(color=DARK, fontSize=13, fontWeight="normal", anchor="start", offset=10)
        .configure_header(labelColor=DARK, titleColor=DARK, labelFontSize=11, labelLimit=0)
    )


def line_scales(names: Sequence[str], dashed: Sequence[str] = ()) -> tuple[Any, Any, dict[str, Any]]:
    """Return the colours and dashes of curves, for a legend below the chart, and what the page lists of them.

    Those in `dashed` lie on another curve, whose colour is to be seen between the dashes.
    """
    import altair as alt

    looks = [line_look(number) for number in range(len(names))]
    dashes = [(7, 7) if name in dashed else dash for name, (_, dash) in zip(names, looks, strict=True)]
    columns = legend_columns(names)
    legend = alt.Legend(
        orient="bottom", columns=columns, title=None, symbolSize=400, symbolType="stroke", symbolOpacity=1
    )
    shown = legend if len(names) > 1 else None
    domain = list(names)
    colour = alt.Color(
        "line:N", scale=alt.Scale(domain=domain, range=[colour for colour, _ in looks]), legend=shown, sort=None
    )
    dash = alt.StrokeDash(
        "line:N", scale=alt.Scale(domain=domain, range=[list(dash) for dash in dashes]), legend=shown, sort=None
    )
    entries = [
        {"name": name, "colour": colour, "dash": list(dash)}
        for name, (colour, _), dash in zip(names, looks, dashes, strict=True)
    ]
    return colour, dash, {"field": "line", "entries": entries}


def legend_columns(names: Sequence[str], width: int = WIDTH) -> int:
    """Return how many columns of a legend fit below a chart.

    >>> legend_columns(["a", "b"]), legend_columns(["a rather long name of a run"] * 9)
    (2, 2)
    """
    longest = max((len(name) for name in names), default=0)
    return max(min(len(names), int(width // (40 + 6.2 * longest))), 1)


def ticks_to(last: int, most: int = 8) -> list[int]:
    """Return ticks at whole numbers up to the last, which has one itself, with room between them.

    >>> ticks_to(1), ticks_to(5), ticks_to(47), ticks_to(1999)
    ([1], [0, 1, 2, 3, 4, 5], [0, 10, 20, 30, 40, 47], [0, 500, 1000, 1500, 1999])
    """
    if last < 2:
        return [last]
    steps = (base * 10**power for power in range(12) for base in (1, 2, 5))
    step = next(step for step in steps if last // step < most)
    return [*(tick for tick in range(0, last, step) if last - tick >= 0.08 * last), last]
