"""The page in a real browser: it draws without an error, asks nobody for anything, and does what its controls say."""

from __future__ import annotations

import json
import re
import shlex
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.page import document
from fedquilt.experiment.page.source import Reader
from fedquilt.experiment.report import gather

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="session")
def written(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the experiment and of two of its runs."""
    runs = sorted(path for path in finished.iterdir() if path.is_dir())[:2]
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(document.page(gather([finished, *runs], Reader())[0], "Report"), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Callable[..., Any]]:
    """Open a page, and fail at the end if it said or asked for anything."""
    contexts, said, asked = [], [], []

    def open_(width: int = 1280, path: Path = written) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []
    assert [address for address in asked if not address.startswith(("file:", "blob:", "data:"))] == []
    assert len([address for address in asked if address.startswith("file:")]) == len(contexts), "one file and no other"


def drawn(page: Any, figure: str) -> int:
    return int(page.get_attribute(f"[data-figure='{figure}']", "data-drawn") or 0)


def after(page: Any, figure: str, change: Callable[[], Any]) -> str:
    """Do something, wait until the figure is drawn anew, and return its texts."""
    before = drawn(page, figure)
    change()
    page.wait_for_function(
        "([name, count]) => Number(document.querySelector(`[data-figure='${name}']`).dataset.drawn) > count",
        arg=[figure, before],
    )
    return texts(page, figure)


def texts(page: Any, figure: str) -> str:
    return "\n".join(page.locator(f"[data-figure='{figure}'] .chart svg text").all_text_contents())


def test_it_is_one_small_file(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert len(text.encode()) - len(data.group(1).encode()) < 2_000_000


def test_numbers_are_those_of_the_run_folders(opened: Callable[..., Any], finished: Path) -> None:
    page = opened()
    best = {path.name: RunFolder(path).history().best for path in finished.iterdir() if path.is_dir()}
    for method in ("FedAvg", "FedAvgM"):
        for alpha in ("0.5", "100"):
            means = []
            for rate in ("0.05", "0.2"):
                found = [best[f"{method},alpha={alpha},lr={rate},seed={seed}"] for seed in (1, 2)]
                values = [each[1] for each in found if each is not None]
                means.append((statistics.fmean(values), statistics.stdev(values)))
            mean, std = max(means)
            cell = page.locator(f"td[data-cell='{method}/{alpha}'] .ours")
            assert cell.text_content() == f"{100 * mean:.2f} ± {100 * std:.2f}"
    assert page.locator("td[data-cell='FedAvg/0.5']").get_attribute("class").split()[0] == "differs"
    assert page.locator("td[data-cell='FedAvg/100']").get_attribute("class").split()[0] == "agrees"
    rows = page.locator("table[data-table='runs'] tbody tr")
    assert rows.count() == 2
    name = rows.nth(0).locator("th").text_content()
    last = RunFolder(finished / name).history().accuracy[-1]
    assert f"{100 * last:.2f}%" in rows.nth(0).text_content()


def test_names_are_shown_as_they_are(opened: Callable[..., Any]) -> None:
    page = opened()
    assert page.locator("h2").first.text_content() == "Momentum <b>&</b> skew"
    assert page.locator("main b:not(.ours b)").count() == 0


def test_axes_scales_and_smoothing(opened: Callable[..., Any]) -> None:
    page = opened()
    figure, holder = "1-curves", page.locator("[data-figure='1-curves']")
    assert "round" in texts(page, figure)
    lines = holder.locator(".chart svg path")
    for value, words in (
        ("megabytes", "MB sent, up and down"),
        ("seconds", "seconds of training"),
        ("batches", "batches of"),
    ):
        assert words in after(page, figure, partial(holder.get_by_label("over").select_option, value))
    after(page, figure, lambda: holder.get_by_label("over").select_option("round"))
    plain = lines.evaluate_all("all => all.map(path => path.getAttribute('d')).join(' ')")
    after(page, figure, lambda: holder.get_by_label("smoothing").select_option("3"))
    smooth = lines.evaluate_all("all => all.map(path => path.getAttribute('d')).join(' ')")
    assert smooth != plain
    after(page, figure, lambda: holder.get_by_label("smoothing").select_option("1"))
    for axis in ("log x", "log y"):
        after(page, figure, holder.get_by_label(axis).check)
    assert lines.evaluate_all("all => all.map(path => path.getAttribute('d')).join(' ')") != plain
    assert "test loss" in after(page, figure, lambda: holder.get_by_label("show").select_option("test loss"))


def test_curves_are_hidden_and_shown(opened: Callable[..., Any]) -> None:
    page = opened()
    holder = page.locator("[data-figure='1-curves']")
    buttons = holder.locator(".legend button")
    assert buttons.all_text_contents() == [
        "FedAvg, alpha = 0.5",
        "FedAvg, alpha = 100",
        "FedAvgM, alpha = 0.5",
        "FedAvgM, alpha = 100",
    ]
    bands = holder.locator(".mark-area path[aria-roledescription='area mark']")
    shown = bands.count()
    after(page, "1-curves", lambda: buttons.nth(1).click())
    assert holder.locator(".legend button").nth(1).get_attribute("aria-pressed") == "false"
    assert bands.count() == shown - 1
    after(page, "1-curves", lambda: holder.locator(".legend button").nth(1).click())
    assert bands.count() == shown


def test_hovering_tells_the_numbers(opened: Callable[..., Any]) -> None:
    page = opened()
    chart = page.locator("[data-figure='1-curves'] .chart svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.4 * box["height"])
    page.mouse.move(box["x"] + 0.61 * box["width"], box["y"] + 0.4 * box["height"])
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert {"run", "round", "± std", "repeats"} <= set(tip.locator("td.key").all_text_contents()) | {
        text.rstrip(":") for text in tip.locator("td.key").all_text_contents()
    }


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows(opened: Callable[..., Any], width: int) -> None:
    page = opened(width)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate(
        """width => [...document.querySelectorAll('main *')]
             .filter(each => !each.closest('.scroll, .chart, pre') && each.getBoundingClientRect().right > width + 1)
             .map(each => each.outerHTML.slice(0, 80))""",
        width,
    )
    assert wide == []
    cut = page.evaluate(
        """() => [...document.querySelectorAll('.chart')].filter(each => each.scrollWidth > each.clientWidth + 1)
             .map(each => each.closest('[data-figure]').dataset.figure)"""
    )
    assert cut == []


def test_resizing_and_printing(opened: Callable[..., Any], tmp_path: Path) -> None:
    page = opened()
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_function("document.querySelector('.chart svg').getBoundingClientRect().right <= 700")
    page.emulate_media(media="print")
    assert not page.locator(".controls").first.is_visible()
    assert page.locator("table.shaped").is_visible()
    content = page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert content.startswith(b"%PDF")
    assert len(content) > 20_000


def test_what_it_takes_to_make_a_cell_again(opened: Callable[..., Any], finished: Path) -> None:
    page = opened()
    cell = page.locator("details", has_text="FedAvgM, alpha = 100").first
    text = cell.text_content()
    trial = next(path for path in sorted(finished.iterdir()) if path.name.startswith("FedAvgM,alpha=100,lr=0.2"))
    made = json.loads((trial / "environment.json").read_text())
    for words in (
        "fedquilt sweep",
        f"fedquilt run {shlex.quote(f'{trial}/spec.toml')}",
        fedquilt.summary(trial)["digest"],
        made["processor"],
    ):
        assert words in text
    assert str(made["commit"]) in text or made["commit"] is None
    assert 'name = "fed_avg_m"' in text


def test_tables_and_figures_can_be_taken_along(opened: Callable[..., Any]) -> None:
    page = opened()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".copies button", has_text="LaTeX").first.click()
    until = time.monotonic() + 30
    while "\\toprule" not in (copied := page.evaluate("navigator.clipboard.readText()")):
        assert time.monotonic() < until, copied
        page.wait_for_timeout(50)
    with page.expect_download() as saving:
        page.locator("[data-figure='1-curves'] .save button", has_text="SVG").click()
    saved = Path(saving.value.path()).read_text(encoding="utf-8")
    assert saved.startswith("<svg")
    assert "FedAvgM, alpha = 100" in saved, "the legend is part of what is saved"
