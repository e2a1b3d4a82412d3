"""What the documentation shows works: Python runs, specs pass, commands exist, tables agree with the code."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import fedquilt.cli
import fedquilt.models
from fedquilt import registry
from fedquilt.experiment.spec import GIVEN, REGISTRIES, WRAP, Options, check_spec

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(fedquilt.cli.app).commands  # type: ignore[attr-defined]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def pages_with(language: str) -> list[Any]:
    return [pytest.param(page, id=name_of(page)) for page in PAGES if blocks(page, language)]


@pytest.fixture
def beside_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the example method that a page tells its reader to put there."""
    shutil.copy(ROOT / "examples" / "own_method.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_run(page: Path, beside_examples: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks(page, "python"), start=1):
        exec(compile(block, f"{name_of(page)}, python block {number}", "exec"), names)


@pytest.mark.parametrize("page", pages_with("toml"))
def test_specs_pass(page: Path, beside_examples: Path) -> None:
    for block in blocks(page, "toml"):
        tables = tomllib.loads(block)
        if "run" in tables:
            check_spec(tables, source=name_of(page), folder=beside_examples)


@pytest.mark.parametrize("page", pages_with("sh"))
def test_commands_are_understood(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["fedquilt"]:
                COMMANDS[words[1]].make_context(words[1], words[2:])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_named_in_prose_exist(page: Path) -> None:
    for mention in re.findall(r"`fedquilt ([^`\n]+)`", page.read_text(encoding="utf-8")):
        command, *rest = mention.split()
        options = {option for parameter in COMMANDS[command].params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= options, mention


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve()
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"({page.name})" not in index] == ["index.md"]


def test_readme_shows_the_example() -> None:
    assert (ROOT / "examples" / "own_model.py").read_text(encoding="utf-8") in blocks(ROOT / "README.md", "python")


@pytest.mark.parametrize("kind", ["methods", "wrappers", "models", "datasets", "partitions", "engines"])
def test_readme_names_everything_registered(kind: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in getattr(registry, kind) if f"`{name}`" not in readme] == []


# Tables of docs/specs.md: a column for every function, a row for every key, and the default where they meet.


def documented() -> dict[str, dict[str, dict[str, str]]]:
    """Read {table of a spec: {function: {key: default}}}."""
    text = (ROOT / "docs" / "specs.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, dict[str, str]]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        if not lines:
            continue
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        functions = [cell.strip("`[]") for cell in rows[0][3:]]
        found[section.split("\n", 1)[0]] = {
            function: {row[0].strip("`"): row[place] for row in rows[2:] if row[place]}
            for place, function in enumerate(functions, start=3)
        }
    return found


def actual(function: Callable[..., Any], given: frozenset[str] = frozenset()) -> dict[str, str]:
    parameters = inspect.signature(function).parameters
    return {name: written(parameter.default) for name, parameter in parameters.items() if name not in given}


def written(default: object) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    if default is None:
        return "unset"
    if isinstance(default, bool):
        return str(default).lower()
    return f'"{default}"' if isinstance(default, str) else str(default)


def functions() -> Iterator[tuple[str, str, dict[str, str]]]:
    yield "run", "run", actual(Options)
    for table, known in [*REGISTRIES.items(), (WRAP, registry.wrappers)]:
        for name in known:
            yield table, name, actual(known[name], GIVEN.get(table, frozenset()))


@pytest.mark.parametrize(
    ("table", "name", "arguments"), list(functions()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_key_and_default_is_documented(table: str, name: str, arguments: dict[str, str]) -> None:
    assert documented()[table][name] == arguments


def test_nothing_is_documented_that_does_not_exist() -> None:
    columns = {(table, name) for table, names in documented().items() for name in names}
    assert columns == {(table, name) for table, name, _ in functions()}
