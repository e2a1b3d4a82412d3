"""The table of bench/peers is what its results say."""

import json
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parent.parent / "bench" / "peers"


@pytest.fixture
def written(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    yield __import__("table").written
    for name in ("table", "chart"):
        sys.modules.pop(name, None)


def test_the_readme_has_the_table_of_the_results(written):
    text = (PEERS / "README.md").read_text()
    assert written(text, json.loads((PEERS / "results.json").read_text())) == text


def test_a_skipped_program_is_in_the_table_with_its_reason(written):
    found = {"machine": "m", "command": "c", "rows": [{"program": "flower", "skipped": "a | b"}]}
    text = written("<!-- the table begins -->\n<!-- the table ends -->", {"w1": found})
    assert "| W1 | flower | skipped: a / b | | | | | |" in text
