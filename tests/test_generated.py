"""Stubs, tables of names and of keys are generated: a new method is its file, its test and its page.

A method is added to a copy of the project; the tests of documents and the contracts over all methods must pass there too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ("stubs", "tables", "keys")
PARTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "pyproject.toml",
    "docs",
    "src",
    "tests",
    "tools",
)
LINKED = ("bench", "examples", "experiments")

METHOD = '''"""Updates that clients shorten before they send them, which no paper proposes."""

from dataclasses import replace

from fedquilt.algorithm import Algorithm, chain
from fedquilt.algorithm.parts.directions import clip_by_norm
from fedquilt.base.arguments import Positive
from fedquilt.base.registry import wrappers


@wrappers.register
def short_steps(algorithm: Algorithm, limit: Positive = 0.5) -> Algorithm:
    """Shorten updates at the client (Nobody 2031).

    - `limit`: the largest norm of an update, above which
      it is shortened.

    >>> from fedquilt import fed_avg
    >>> short_steps(fed_avg()).applied.claims
    ()
    """
    return replace(algorithm, upload=chain(algorithm.upload, clip_by_norm(limit)))
'''

PAGE = """# Short steps: `short_steps`

Nobody 2031, *Steps*.

Changes: mean.

## Idea

Short steps go wrong less.

## Equation

Δ ← Δ / max(1, ‖Δ‖₂ / limit)

## Spec

```toml
{spec}```

## Cost

A norm per client.

## What leaves the client

The shortened update.
"""

KEYS = """### short_steps

| key | takes | what it does | default |
|---|---|---|---|
| `limit` | number > 0 | the largest norm of an update, above which it is shortened | 0.5 |

"""

SPEC = """\
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
    for part in LINKED:
        (folder / part).symlink_to(ROOT / part)
    (folder / "src/fedquilt/methods/short_steps.py").write_text(METHOD, encoding="utf-8")
    (folder / "docs/methods/short_steps.md").write_text(PAGE.format(spec=SPEC), encoding="utf-8")
    (folder / "spec.toml").write_text(SPEC, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def fresh(copy: Path) -> Path:
    """The copy, with what is generated written anew."""
    for script in SCRIPTS:
        stale = python(copy, f"tools/{script}.py", "--check")
        assert (stale.returncode, "stale" in stale.stdout) == (1, True), stale.stderr
        assert python(copy, f"tools/{script}.py", "--write").returncode == 0
    return copy


@pytest.mark.parametrize("script", SCRIPTS)
def test_generated_files_are_fresh(script: str) -> None:
    ended = python(ROOT, f"tools/{script}.py", "--check")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_new_method_is_listed(copy: Path) -> None:
    listed = python(copy, "-m", "fedquilt", "list", "methods").stdout
    assert "short_steps\tShorten updates at the client (Nobody 2031).\t[[wrap]]\n" in listed


def test_a_new_method_is_a_public_name_and_taken_in_a_spec(copy: Path) -> None:
    ask = "import fedquilt as fq; print('short_steps' in dir(fq), fq.short_steps is fq.methods.short_steps)"
    ended = python(copy, "-c", f"{ask}; fq.run('spec.toml', out='run')")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("True True\n")
    for change, said in (("name=short_stesp", "did you mean 'short_steps'?"), ("limit=-1.0", "limit")):
        wrong = python(copy, "-m", "fedquilt", "run", "spec.toml", "--set", f"wrap.1.{change}")
        assert said in wrong.stderr
        assert wrong.returncode == 2


def test_a_new_method_is_in_stubs_and_tables(fresh: Path) -> None:
    row = "| `short_steps` | mean | Shorten updates at the client. | Nobody 2031 | [Short steps](short_steps.md) |\n"
    assert row in (fresh / "docs/methods/index.md").read_text(encoding="utf-8")
    assert "[`short_steps`](docs/methods/short_steps.md)" in (fresh / "README.md").read_text(encoding="utf-8")
    assert "- Nobody 2031: `short_steps`\n" in (fresh / "docs/papers.md").read_text(encoding="utf-8")
    assert KEYS in (fresh / "docs/specs.md").read_text(encoding="utf-8")
    for stub in ("__init__.pyi", "methods/__init__.pyi"):
        assert "from fedquilt.methods.short_steps import short_steps\n" in (fresh / "src/fedquilt" / stub).read_text()


def test_stale_keys_are_written_anew_and_their_words_stay(fresh: Path) -> None:
    page = fresh / "docs/specs.md"
    text = page.read_text(encoding="utf-8")
    old = KEYS.replace("number > 0", "text").replace("0.5 |", "7 |\n| `gone` | text | nothing any more | unset |")
    page.write_text(text.replace(KEYS, old), encoding="utf-8")
    assert python(fresh, "tools/keys.py", "--write").returncode == 0
    assert page.read_text(encoding="utf-8") == text


def test_a_new_method_needs_no_more_than_its_file_its_test_and_its_page(fresh: Path) -> None:
    files = ("test_docs", "test_public_names", "test_generated", "contracts/test_wrappers", "contracts/test_methods")
    chosen = "short_steps or in_the_index or documented_that or says_what or has_its_title or argument_of_every"
    ended = python(
        fresh,
        *("-m", "pytest", "-rp", "-p", "no:cacheprovider", "-k", chosen, "src/fedquilt/methods/short_steps.py"),
        *(f"tests/{file}.py" for file in (*files, "engines/test_vectorised")),
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("PASSED") > 20


def test_every_paper_that_is_named_has_its_title() -> None:
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "methods").glob("*.md"))
    listed = re.findall(r"^- ([\w ]+) (\d{4}): `", text, re.MULTILINE)
    assert len(listed) > 20
    for who, year in listed:
        on_its_page = re.search(rf"^{who}\b[^\n]* {year}, \*", pages, re.MULTILINE)
        assert on_its_page or re.search(rf"^- {who} {year}: [A-Z]", text, re.MULTILINE), f"{who} {year}"
