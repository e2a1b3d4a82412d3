"""Stubs and tables of names are generated: a new method is in all of them by its file and its page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ("stubs", "tables")
PARTS = ("README.md", "docs/methods", "docs/papers.md", "docs/specs.md", "src", "tools")

METHOD = '''"""Updates that clients shorten before they send them, which no paper proposes."""

from dataclasses import replace

from fedquilt.algorithm import Algorithm, chain
from fedquilt.algorithm.parts.norms import clip_by_norm
from fedquilt.base.arguments import Positive
from fedquilt.base.registry import wrappers


@wrappers.register
def short_steps(algorithm: Algorithm, limit: Positive = 0.5) -> Algorithm:
    """Shorten updates at the client (Nobody 2031)."""
    return replace(algorithm, upload=chain(algorithm.upload, clip_by_norm(limit)))
'''

PAGE = """# Short steps: `short_steps`

Nobody 2031, *Steps*.

Changes: mean.
"""

KEYS = """### short_steps

| key | takes | what it does | default |
|---|---|---|---|
{rows}

## simulate
"""
STALE = "| `gone` | text | nothing any more | unset |\n| `limit` | text | the largest norm | 7 |"
FRESH = "| `limit` | number > 0 | the largest norm | 0.5 |"

SPEC = """
[run]
rounds = 1
[data]
name = "digits"
[partition]
name = "iid"
clients = 4
[model]
name = "softmax_regression"
[method]
name = "fed_avg"
[[wrap]]
name = "short_steps"
[engine]
name = "inline"
"""


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the sources of a folder."""
    given = os.environ | {"PYTHONPATH": str(folder / "src")}
    return subprocess.run([sys.executable, *words], cwd=folder, env=given, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is generated, and of what it is generated from, with one method more."""
    folder = tmp_path_factory.mktemp("copy")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)
    (folder / "src/fedquilt/methods/short_steps.py").write_text(METHOD, encoding="utf-8")
    (folder / "docs/methods/short_steps.md").write_text(PAGE, encoding="utf-8")
    (folder / "spec.toml").write_text(SPEC, encoding="utf-8")
    return folder


@pytest.mark.parametrize("script", [*SCRIPTS, "keys"])
def test_generated_files_are_fresh(script: str) -> None:
    ended = python(ROOT, f"tools/{script}.py", "--check")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_new_method_is_listed(copy: Path) -> None:
    listed = python(copy, "-m", "fedquilt", "list", "methods").stdout
    assert "short_steps\tShorten updates at the client (Nobody 2031).\t[[wrap]]\n" in listed


def test_a_new_method_is_taken_in_a_spec(copy: Path) -> None:
    ended = python(copy, "-m", "fedquilt", "run", "spec.toml")
    assert ended.returncode == 0, ended.stderr
    typo = python(copy, "-m", "fedquilt", "run", "spec.toml", "--set", "wrap.1.name=short_stesp")
    assert "did you mean 'short_steps'?" in typo.stderr
    wrong = python(copy, "-m", "fedquilt", "run", "spec.toml", "--set", "wrap.1.limit=-1.0")
    assert "limit" in wrong.stderr
    assert wrong.returncode == 2


def test_a_new_method_is_a_public_name(copy: Path) -> None:
    ask = "import fedquilt as fq; print('short_steps' in dir(fq), fq.short_steps is fq.methods.short_steps)"
    assert python(copy, "-c", ask).stdout == "True True\n"


def test_a_new_method_is_in_stubs_and_tables(copy: Path) -> None:
    row = "| `short_steps` | mean | Shorten updates at the client. | Nobody 2031 | [Short steps](short_steps.md) |\n"
    for script in SCRIPTS:
        stale = python(copy, f"tools/{script}.py", "--check")
        assert (stale.returncode, "stale" in stale.stdout) == (1, True), stale.stderr
        assert python(copy, f"tools/{script}.py", "--write").returncode == 0
        assert python(copy, f"tools/{script}.py", "--check").returncode == 0
    assert row in (copy / "docs/methods/index.md").read_text(encoding="utf-8")
    assert "[`short_steps`](docs/methods/short_steps.md)" in (copy / "README.md").read_text(encoding="utf-8")
    assert "- Nobody 2031: `short_steps`\n" in (copy / "docs/papers.md").read_text(encoding="utf-8")
    for stub in ("__init__.pyi", "methods/__init__.pyi"):
        assert "from fedquilt.methods.short_steps import short_steps\n" in (copy / "src/fedquilt" / stub).read_text()


def test_the_keys_of_a_new_method_are_filled_in(copy: Path) -> None:
    page = copy / "docs/specs.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("## simulate\n", KEYS.format(rows=STALE), 1), encoding="utf-8")
    stale = python(copy, "tools/keys.py", "--check")
    assert (stale.returncode, "stale" in stale.stdout) == (1, True), stale.stderr
    assert python(copy, "tools/keys.py", "--write").returncode == 0
    assert page.read_text(encoding="utf-8") == text.replace("## simulate\n", KEYS.format(rows=FRESH), 1)


def test_every_paper_that_is_named_has_its_title() -> None:
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- ([\w ]+ \d{4}): `", text, re.MULTILINE)
    assert len(listed) > 20
    assert [paper for paper in listed if not re.search(rf"^- {paper}: [A-Z]", text, re.MULTILINE)] == []
