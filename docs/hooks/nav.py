"""Writes out the navigation: an entry with a * stands for every page it matches that has no entry of its own."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Replace patterns by pages, in the order of their titles."""
    named = set(entries(config.nav))
    pages = [file for file in files.documentation_pages() if file.src_uri not in named]
    config.nav = expanded(config.nav, sorted(pages, key=lambda file: title(file).casefold()))


def entries(nav: Any) -> Iterator[str]:
    """Yield every path in a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from entries(part)


def expanded(nav: Any, pages: list[File]) -> Any:
    """Return the navigation with pages in the place of patterns."""
    if isinstance(nav, dict):
        return {name: expanded(part, pages) for name, part in nav.items()}
    if isinstance(nav, list):
        return [entry for part in nav for entry in matching(part, pages)]
    return nav


def matching(part: Any, pages: list[File]) -> list[Any]:
    """Return the entries that one entry of a list stands for."""
    if isinstance(part, str) and "*" in part:
        return [{title(file): file.src_uri} for file in pages if fnmatch(file.src_uri, part.replace("**/", "*"))]
    return [expanded(part, pages)]


def title(file: File) -> str:
    """Return a page's heading, without the names in code that may follow it: "FedProx" of "FedProx: `fed_prox`"."""
    first = file.content_string.lstrip().split("\n", 1)[0]
    return first.removeprefix("# ").split(": `", 1)[0].replace("`", "")
