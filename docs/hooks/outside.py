"""Puts pages that live outside docs/ on the site, and makes links work there as they do on the repository's page.

A link to a page leads to that page on the site, a link to any other file or folder to the repository. A link to nothing is
left as it is, and the strict build refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = (
    "*.md",
    *(f"{folder}/**/{file}" for folder in ("bench", "experiments") for file in ("README.md", "*.png", "*.svg")),
)
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages and pictures from outside docs/."""
    for path in sorted({path for pattern in OUTSIDE for path in ROOT.glob(pattern)}):
        files.append(File.generated(config, site_path(path), abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite relative links that mean another place on the site than in the repository."""
    source = page.file.abs_src_path
    if source is None:  # generated text: its links are the site's already
        return markdown

    def translated(link: re.Match[str]) -> str:
        target = Path(source).parent.joinpath(unquote(link[1])).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return link[1]
        readme = target / "README.md"
        path = site_path(readme if readme.exists() else target)
        if files.get_file_from_path(path) is not None:
            return posixpath.relpath(path, posixpath.dirname(page.file.src_uri))
        kind = "tree" if target.is_dir() else "blob"
        return f"{(config.repo_url or '').rstrip('/')}/{kind}/main/{target.relative_to(ROOT).as_posix()}"

    return LINK.sub(translated, markdown)


def site_path(path: Path) -> str:
    """Return where a file of the repository is on the site, if it is there at all.

    >>> site_path(ROOT / "docs" / "python.md"), site_path(ROOT / "bench" / "README.md"), site_path(ROOT / "CHANGELOG.md")
    ('python.md', 'bench/index.md', 'project/changelog.md')
    """
    inside = path.relative_to(ROOT)
    if inside.parts[0] == "docs":
        return path.relative_to(ROOT / "docs").as_posix()
    if inside.name == "README.md":
        return "overview.md" if len(inside.parts) == 1 else inside.with_name("index.md").as_posix()
    if len(inside.parts) == 1:
        return f"project/{inside.name.lower().replace('_', '-')}"
    return inside.as_posix()
