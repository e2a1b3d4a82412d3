"""Writes what the keys of a spec take, and their defaults, into the tables of docs/specs.md, or says if they are stale.

    python tools/keys.py --write
    python tools/keys.py --check

Both are read from the functions' annotations and signatures. What a key does is written by hand, in its table or in the
function's docstring (``- `key`: what it does.``), and so is the order of rows and columns: a new key comes last. A function
that is neither a column nor a heading is given a heading, at the end of its section.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import generated
import tables
from pydantic import AfterValidator
from pydantic.fields import FieldInfo

from fedquilt.base import arguments, registry
from fedquilt.experiment.options import Options
from fedquilt.experiment.tables import ARRAYS, GIVEN, REGISTRIES
from fedquilt.models.random_fourier import Sigma

SPECS = Path(__file__).resolve().parents[1] / "docs" / "specs.md"
EMPTY = "| key | takes | what it does | default |\n|---|---|---|---|\n"
TABLE = re.compile(r"^\| key \| takes \| what it does \|.*\n(?:\|.*\n)+", re.MULTILINE)
OWN_CHECKS = (
    (arguments.Rate, "number > 0, may change"),
    (arguments.ChangingCount, "whole number ≥ 1, may change"),
    (arguments.BatchSize, "whole number ≥ 1, or inf"),
    (arguments.ChangingBatchSize, "whole number ≥ 1, or inf; may change"),
    (Sigma, 'number > 0, or `"median"`'),
)
"""Annotations that check by a function, which has no words for what it takes."""


def either(words: Sequence[str]) -> str:
    """Join words as alternatives.

    >>> either(["a", "b", "c"]), either(["a"])
    ('a, b or c', 'a')
    """
    return " or ".join([part for part in (", ".join(words[:-1]), words[-1]) if part])


def quoted(names: Iterable[object]) -> list[str]:
    """Return values as they are written in a spec.

    >>> quoted(["fine", 2])
    ['`"fine"`', '2']
    """
    return [f'`"{name}"`' if isinstance(name, str) else str(name) for name in names]


def takes(hint: Any) -> str:
    """Say what an annotation takes.

    >>> takes(arguments.Count | None), takes(arguments.Momentum), takes(bool | Literal["auto"])
    ('whole number ≥ 1', 'number in [0, 1)', 'true, false or `"auto"`')
    """
    for known, words in OWN_CHECKS:
        if hint == known:
            return words
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        if bool in members:
            return either(["true", "false", *(takes(member) for member in members if member is not bool)])
        if set(members) == {Path, str}:
            return "text"
        return ", or ".join(takes(member) for member in members)
    if typing.get_origin(hint) is Literal:
        return either(quoted(typing.get_args(hint)))
    if typing.get_origin(hint) is Annotated:
        kind, *rules = typing.get_args(hint)
        return takes(kind) + bounds(kind, rules) if kind in (int, float) else takes(kind)
    if typing.get_origin(hint) in (list, tuple):
        return "list of " + takes(typing.get_args(hint)[0]).replace("number", "numbers")
    if typing.get_origin(hint) is dict:
        return "table of " + takes(typing.get_args(hint)[1]).replace("number", "numbers")
    return {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}[hint]


def bounds(kind: type, rules: Iterable[object]) -> str:
    """Say between which numbers a number must be.

    >>> bounds(int, typing.get_args(arguments.Seed)), bounds(float, typing.get_args(arguments.PositiveOrInfinite))
    (' ≥ 0', ' > 0, or inf')
    """
    rules = list(rules)
    limits = [limit for rule in rules if isinstance(rule, FieldInfo) for limit in rule.metadata]
    low, high = (
        next(((sign, getattr(limit, sign)) for limit in limits for sign in signs if hasattr(limit, sign)), None)
        for signs in (("ge", "gt"), ("le", "lt"))
    )
    if low is None:
        return ""
    if kind is int and low[0] == "gt":
        low = "ge", low[1] + 1
    if high is None or high[1] >= 2**63:  # more than anybody writes
        finite = kind is int or any(isinstance(rule, AfterValidator) for rule in rules)
        return f" {'≥' if low[0] == 'ge' else '>'} {low[1]}" + ("" if finite else ", or inf")
    if kind is int:
        return f" from {low[1]} to {high[1]}"
    return f" in {'[' if low[0] == 'ge' else '('}{low[1]}, {high[1]}{']' if high[0] == 'le' else ')'}"


def default(parameter: inspect.Parameter) -> str:
    """Return a parameter's default as it is written in a spec."""
    if parameter.default is inspect.Parameter.empty:
        return "required"
    if parameter.default is None:
        return "unset"
    if isinstance(parameter.default, bool):
        return str(parameter.default).lower()
    return f'"{parameter.default}"' if isinstance(parameter.default, str) else str(parameter.default)


def keys(function: Callable[..., object], given: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Return what each key of a function takes, and its default."""
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function, include_extras=True)
    found = {
        name: (takes(hints[name]), default(parameter))
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in given
    }
    if function is Options:
        # Annotated as text: names of these, or import paths.
        found["loss"] = f"{', '.join(quoted(registry.losses))} or the import path of your own", found["loss"][1]
        for key, known in {"metrics": registry.metrics, "track": registry.trackers}.items():
            found[key] = f"list of {', '.join(quoted(known))} or import paths of your own", found[key][1]
    return found


def of_several(said: dict[str, str]) -> str:
    """Say what a key takes in several functions: what most say, then the others by name.

    >>> of_several({"a": "number", "b": "number", "c": "text"})
    'number. In `c`: text'
    """
    usual = max(said.values(), key=list(said.values()).count)
    others: dict[str, list[str]] = {}
    for name, words in said.items():
        if words != usual:
            others.setdefault(words, []).append(f"`{name}`")
    return ". ".join([usual, *(f"In {' and '.join(names)}: {words}" for words, names in others.items())])


def described(function: Callable[..., object]) -> dict[str, str]:
    """Read from a docstring what arguments do.

    >>> def scaled(by: float): "Scale.\\n\\n- `by`: the factor, which\\n  is used.\\n"
    >>> described(scaled)
    {'by': 'the factor, which is used'}
    """
    found = re.findall(r"^- `(\w+)`: (.+?)[.;]?$(?!\n  )", inspect.getdoc(function) or "", re.MULTILINE | re.DOTALL)
    return {key: " ".join(words.split()) for key, words in found}


def rewritten(old: str, section: str, heading: str | None) -> str:
    """Return a table of a section, or of the function that a heading in it names, as it should be."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in old.splitlines()]
    titles, words = rows[0][3:], {row[0].strip("`"): row[2] for row in rows[2:]}
    order = list(words)
    names = [heading] if heading else [title.strip("`[]") for title in titles]
    known = {**REGISTRIES, **ARRAYS}.get(section)
    given = GIVEN.get(section, frozenset())
    functions = [known[name] if known else Options for name in names]
    columns = [keys(function, given) for function in functions]
    words = {key: text for function in functions for key, text in described(function).items()} | {
        key: text for key, text in words.items() if text
    }
    every = list(dict.fromkeys(key for column in columns for key in column))
    lines = [
        (
            f"`{key}`",
            of_several({name: column[key][0] for name, column in zip(names, columns, strict=True) if key in column}),
            words.get(key, ""),
            *(column[key][1] if key in column else "" for column in columns),
        )
        for key in sorted(every, key=[*order, *every].index)
    ]
    made = tables.table(f"| {' | '.join(rows[0])} |", lines).strip("\n") + "\n"
    return re.sub(r"\|  (?=\|)", "| ", made)  # cells without a default


def with_headings(text: str) -> str:
    """Return a page in which every function has a column, or a heading of its own."""
    for section, known in {**REGISTRIES, **ARRAYS}.items():
        before, mark, rest = text.partition(f"\n## {section}\n")
        inside, after, others = rest.partition("\n## ")
        table = TABLE.search(inside.split("\n### ", 1)[0])
        present = re.findall(r"^### (\w+)$", inside, re.MULTILINE)
        present += re.findall(r"`(\w+)`", table[0].split("\n", 1)[0]) if table else []
        for name in known:
            if name not in present:
                empty = f"\n{EMPTY}" if keys(known[name], GIVEN.get(section, frozenset())) else ""
                inside = f"{inside.rstrip()}\n\n### {name}\n{empty}"
        text = before + mark + inside + after + others
    return text


def written(text: str) -> str:
    """Return a page with the tables of keys as they should be."""
    text = with_headings(text)

    def table(found: re.Match[str]) -> str:
        section, *rest = text[: found.start()].rsplit("\n## ", 1)[1].split("\n", 1)
        headings = re.findall(r"^### (.+)$", rest[0], re.MULTILINE)
        return rewritten(found[0], section, headings[-1] if headings else None)

    return TABLE.sub(table, text)


if __name__ == "__main__":
    sys.exit(generated.main(__doc__, {SPECS: written(SPECS.read_text(encoding="utf-8"))}))
