"""Lets mkdocstrings show the examples in docstrings as code: a `>>>` without a fence is a quotation in Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n[ \t]*\n(?!>>>)|\Z)", re.MULTILINE | re.DOTALL)


class Doctests(griffe.Extension):
    """Fences the examples of every docstring, up to the empty line after them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
