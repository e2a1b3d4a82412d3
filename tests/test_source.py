"""How the source is laid out: every folder says what it holds and may import, every class name has one meaning."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedquilt"
FOLDERS = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)
MODULES = sorted(SOURCE.rglob("*.py"))
MOST_FIELDS = 16


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE)))
def test_a_folder_says_what_it_may_import(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert re.search(r"\b[Mm]ay import\b|\bImports (nothing|everything)\b", said)
    for name in re.findall(r"`(\w+\.py)`", said):
        assert (folder / name).is_file(), name


def test_no_class_name_is_given_twice() -> None:
    homes = defaultdict(list)
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(module.relative_to(SOURCE)))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_an_algorithm_has_few_fields() -> None:
    tree = ast.parse((SOURCE / "algorithm" / "algorithm.py").read_text(encoding="utf-8"))
    (record,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Algorithm")
    assert sum(isinstance(node, ast.AnnAssign) for node in record.body) <= MOST_FIELDS


def test_files_that_the_map_of_the_code_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", text))
    known = [path.relative_to(ROOT).as_posix() for path in (*MODULES, *(ROOT / "tests").rglob("*.py"))]
    assert len(named) > 40
    assert [name for name in sorted(named) if not any(f"/{path}".endswith(f"/{name}") for path in known)] == []


def test_the_map_of_the_code_says_nothing_twice() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    openings = [" ".join(paragraph.split()[:8]) for paragraph in text.split("\n\n") if len(paragraph.split()) > 8]
    assert len(openings) == len(set(openings))
