"""What the documentation shows works: Python runs, specs pass, commands exist, tables agree with the code."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import fedquilt
import fedquilt.cli.app
import fedquilt.models
from fedquilt.base import registry
from fedquilt.experiment.options import Options
from fedquilt.experiment.spec import check_spec
from fedquilt.experiment.tables import ARRAYS, EXPERIMENT_TABLES, GIVEN, REGISTRIES

ROOT = Path(__file__).parents[1]
METHODS = ROOT / "docs" / "methods"
METHOD_PAGES = sorted(page for page in METHODS.glob("*.md") if page.name != "index.md")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    METHODS / "index.md",
    *METHOD_PAGES,
]
COMMANDS = typer.main.get_command(fedquilt.cli.app.app).commands  # type: ignore[attr-defined]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def pages_with(language: str) -> list[Any]:
    return [pytest.param(page, id=name_of(page)) for page in PAGES if blocks(page, language)]


@pytest.fixture
def beside_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the examples that a page tells its reader to put there."""
    for example in ("own_method.py", "unequal_sizes.py"):
        shutil.copy(ROOT / "examples" / example, tmp_path)
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
        if "run" in tables and any(name in tables for name in EXPERIMENT_TABLES):
            for scale in (None, *tables.get("scale", {})):
                fedquilt.experiment(tables, scale=scale)
        elif "run" in tables:
            check_spec(tables, source=name_of(page), folder=beside_examples)


@pytest.mark.parametrize("page", pages_with("sh"))
def test_commands_are_understood(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["fedquilt"]:
                COMMANDS[words[1]].make_context(words[1], words[2:])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_named_in_prose_exist(page: Path) -> None:
    for mention in re.findall(r"`fedquilt ([^`\n]+)`", page.read_text(encoding="utf-8")):
        name, *rest = mention.split()
        command = COMMANDS[name]
        if rest and rest[0] in getattr(command, "commands", {}):  # `fedquilt data info …`
            command = command.commands[rest[0]]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= options, mention


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"({page.name})" not in index] == ["index.md"]
    assert "(methods/index.md)" in index
    methods = (METHODS / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in METHOD_PAGES if f"({page.name})" not in methods] == []


# Pages on methods: one for every method and wrapper, all alike. Most have a comparison (docs/methods/plots.py): a picture,
# and the numbers that were measured.

EXAMPLE = "On a small example"
HEADINGS = ["Idea", "Equation", "Spec", EXAMPLE, "Cost", "What leaves the client"]
PLOTS: dict[str, Any] = runpy.run_path(str(METHODS / "plots.py"))
RESULTS: dict[str, dict[str, dict[str, float]]] = json.loads((METHODS / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [*registry.methods, *registry.wrappers, *registry.simulations])
def test_every_method_has_a_page(name: str) -> None:
    rows = re.findall(
        rf"^\| `{name}` \|.*\]\((\w+\.md)\) \|$", (METHODS / "index.md").read_text(encoding="utf-8"), re.M
    )
    assert len(rows) == 1
    assert f"`{name}`" in (METHODS / rows[0]).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", METHOD_PAGES, ids=name_of)
def test_pages_on_methods_have_the_same_headings(page: Path) -> None:
    wanted = [each for each in HEADINGS if each != EXAMPLE or page.stem in PLOTS["COMPARISONS"]]
    assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) == wanted


@pytest.mark.parametrize("page", METHOD_PAGES, ids=name_of)
def test_pages_on_methods_have_a_spec(page: Path) -> None:
    (block,) = blocks(page, "toml")
    tables = tomllib.loads(block)
    names = {tables["method"]["name"], *(each["name"] for array in ARRAYS for each in tables.get(array, []))}
    heading = page.read_text(encoding="utf-8").split("\n", 1)[0]
    assert names & set(re.findall(r"`(\w+)`", heading))


MEASURED_PAGES = [METHODS / f"{name}.md" for name in PLOTS["COMPARISONS"]]


@pytest.mark.parametrize("page", MEASURED_PAGES, ids=name_of)
def test_the_spec_of_a_page_is_one_that_was_measured(page: Path) -> None:
    comparison = PLOTS["COMPARISONS"][page.stem]
    (block,) = blocks(page, "toml")
    assert tomllib.loads(block) in [comparison.spec(label) for label in comparison.runs]


@pytest.mark.parametrize("page", MEASURED_PAGES, ids=name_of)
def test_the_numbers_of_a_page_are_those_measured(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (table,) = re.findall(rf"^{re.escape(PLOTS['HEADER'])}\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    measured = RESULTS[page.stem]
    assert table.splitlines() == [PLOTS["row"](label, about) for label, about in measured.items()]
    assert list(measured) == list(PLOTS["COMPARISONS"][page.stem].runs)
    assert f"python docs/methods/plots.py {page.stem}\n" in text
    assert f"](../images/methods/{page.stem}.png)" in text


def test_readme_shows_the_example() -> None:
    assert (ROOT / "examples" / "own_model.py").read_text(encoding="utf-8") in blocks(ROOT / "README.md", "python")


@pytest.mark.parametrize("kind", list(registry.KINDS))
def test_readme_names_everything_registered(kind: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in registry.KINDS[kind] if f"`{name}`" not in readme] == []


# Tables of docs/specs.md: a column for every function, a row for every key, and the default where they meet. Wrappers are
# many: each has a heading and a table of its own, or none where it takes no keys.


def documented() -> dict[str, dict[str, dict[str, str]]]:
    """Read {table of a spec: {function: {key: default}}}."""
    text = (ROOT / "docs" / "specs.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, dict[str, str]]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        own, *parts = re.split(r"^### ", section, flags=re.MULTILINE)
        columns = defaults(own)
        for part in parts:
            columns[part.split("\n", 1)[0]] = defaults(part).get("default", {})
        if columns:
            found[section.split("\n", 1)[0]] = columns
    return found


def defaults(text: str) -> dict[str, dict[str, str]]:
    """Read {column: {key: default}} from the table of a section; columns begin after key, type and meaning."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {
        cell.strip("`[]"): {row[0].strip("`"): row[place] for row in rows[2:] if row[place]}
        for place, cell in enumerate(rows[0] if rows else [])
        if place >= 3
    }


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
    for table, known in [*REGISTRIES.items(), *ARRAYS.items()]:
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


def test_every_key_says_what_it_does() -> None:
    text = (ROOT / "docs" / "specs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", text, re.MULTILINE)
    assert len(rows) > 200
    assert [key for key, words in rows if not words.strip()] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES])
def test_tables_are_whole(page: Path) -> None:
    for lines in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
        header, rule = [*lines.splitlines(), ""][:2]
        assert re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", rule), f"rows outside of a table: {header}"


def test_papers_answer_no_question_twice() -> None:
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `") or " | " in line]
    firsts = [row[0] for row in rows if row[0].strip("| ") not in ("", "open", "model", "paper")]
    assert sorted(set(firsts)) == sorted(firsts)
    answers = [row[-1] for row in rows if len(row[-1]) > 30]
    assert sorted(set(answers)) == sorted(answers)
