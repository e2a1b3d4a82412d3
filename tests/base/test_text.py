"""Text from outside: nothing raw reaches a terminal, and nothing endless."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from fedquilt.base.text import LONGEST, visible

_ANY = st.text(st.characters(codec=None), max_size=60)  # halves of surrogate pairs too


@given(_ANY, st.integers(40, 100))
def test_nothing_is_raw_and_nothing_is_longer_than_the_limit(text: str, limit: int) -> None:
    shown = visible(text, limit)
    assert len(shown) <= limit
    assert all(unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in shown)
    shown.encode()


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=60))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_text_of_megabytes_is_cut_and_its_length_is_named() -> None:
    shown = visible("\x1b]0;title\x07" * 500_000)
    assert len(shown) <= LONGEST
    assert shown.endswith(" … (5,000,000 characters)")
    assert "\x1b" not in shown


def test_a_message_of_our_own_has_its_lines() -> None:
    assert visible("two problems:\n\ta\x00", keep="\n") == "two problems:\n\\ta\\x00"
