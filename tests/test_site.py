"""The documentation site builds strictly, holds every page and public name, and asks no other server for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fedquilt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(there)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return there


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "a":
            self.links.add(values.get("href", ""))
        elif tag == "link" or "src" in values:
            self.loads.add(values.get("src") or values.get("href", ""))


def test_every_page_is_on_it(site: Path) -> None:
    pages = [page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")]
    assert [page for page in pages if not (site / page).exists()] == []
    links = Page(site / "index.html").links
    assert [page for page in pages if page.as_posix() not in links] == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert [load for page in pages for load in Page(page).loads if "//" in load] == []
    styles = [style.read_text(encoding="utf-8") for style in site.rglob("*.css")]
    assert [
        address for style in styles for address in re.findall(r"url\([\"']?(?:https?:)?//[^)]*|@import", style)
    ] == []


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    anchors = set().union(*(Page(page).anchors for page in (site / "reference").glob("*.html")))
    assert [name for name in fedquilt.__all__ if f"fedquilt.{name}" not in anchors] == []


def test_the_gallery_shows_every_method_with_a_picture(site: Path) -> None:
    gallery = Page(site / "methods" / "gallery.html")
    pages = {page.stem for page in (DOCS / "methods").glob("*.md") if "](../images/" in page.read_text("utf-8")}
    assert len(pages) > 20
    assert {f"{page}.html" for page in pages} <= gallery.links
    assert {f"../images/methods/{page}.png" for page in pages} <= gallery.loads


def test_links_out_of_docs_lead_to_the_repository_or_to_a_page(site: Path) -> None:
    links = Page(site / "own-method.html").links
    assert "project/contributing.html" in links
    assert "https://github.com/fedquilt/fedquilt/blob/main/examples/own_method.py" in links
    assert "hsu-2019/index.html" in Page(site / "experiments" / "index.html").links
