"""How work on files tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str, int, int | None], None]
"""Is told what is being done, how many bytes are done, and of how many, if that is known."""


def tell_nobody(what: str, done: int, total: int | None) -> None:
    """Do nothing."""
