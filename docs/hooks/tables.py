"""Marks the columns of tables that hold sentences, so that a narrow screen does not squeeze them to a word per line."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig

SENTENCE = 40
"""Characters: a longer cell is a sentence."""


def on_config(config: MkDocsConfig) -> None:
    """Add the extension below to those of mkdocs.yml."""
    config.markdown_extensions.append(Tables())


class Tables(Extension):
    """Registers the marking, before the text of cells becomes elements."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Register it."""
        md.treeprocessors.register(Sentences(md), "sentences", 25)


class Sentences(Treeprocessor):
    """Gives the class `sentence` to every cell of a column with a sentence in it."""

    def run(self, root: Element) -> None:
        """Mark all tables of a page."""
        for table in root.iter("table"):
            for column in zip(*(list(row) for row in table.iter("tr")), strict=False):
                if any(len(cell.text or "") > SENTENCE for cell in column):
                    for cell in column:
                        cell.set("class", "sentence")
