"""Lets text be read here as on GitHub: a nested list is indented by two spaces there, and Python-Markdown asks for four."""

from __future__ import annotations

import re
from typing import Any

FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Indent the items of nested lists, outside of code."""
    parts = FENCED.split(markdown)
    parts[::2] = [re.sub(r"^  (?=[-*] )", "    ", text, flags=re.MULTILINE) for text in parts[::2]]
    return "".join(parts)
