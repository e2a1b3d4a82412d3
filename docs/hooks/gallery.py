"""Generates the gallery: picture and idea of every method's page that has a picture, with a link to it."""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

HEAD = """# Gallery

What methods do on a small example. The pictures show test accuracy, or accuracy on the clients' own data, over
rounds; each page has the spec, the numbers and [how they were measured](index.md#how-the-examples-were-measured).

<div class="gallery" markdown>
"""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the gallery."""
    cards = [card(file) for file in files if file.src_uri.startswith("methods/") and file.is_documentation_page()]
    page = "\n".join([HEAD, *sorted(filter(None, cards)), "</div>\n"])
    files.append(File.generated(config, "methods/gallery.md", content=page))


def card(file: File) -> str:
    """Return what the gallery shows of a page; nothing of a page without a picture."""
    text = file.content_string
    picture = re.search(r"!\[([^\]]*)\]\((\S+\.png)\)", text)
    heading = re.match(r"# (.+)", text)
    idea = re.search(r"^## Idea\n+(.+?)\n\n", text, re.MULTILINE | re.DOTALL)
    if not (picture and heading and idea):
        return ""
    page, (title, _, names) = file.name + ".md", heading[1].partition(": ")
    return "\n".join(
        [
            f"<div markdown>\n\n**[{title}]({page})** {names}\n",
            f"[![{picture[1]}]({picture[2]}){{ loading=lazy }}]({page})\n",
            f"{idea[1]}\n\n</div>\n",
        ]
    )
