"""What the source of a registered function says of it, read without running it: its texts, and its arguments in words."""

from __future__ import annotations

import ast
import functools
import sys
from dataclasses import dataclass
from pathlib import Path

_WORDS = {
    "bool": "true or false",
    "int": "whole number",
    "float": "number",
    "str": "text",
    "Path": "path",
    "Rate": "number above 0, or a table of how it changes over rounds",
    "Seed": "whole number, at least 0",
    "dict[str, float]": "table of numbers",
    "ChangingCount": "whole number, at least 1, or a table of how it changes over rounds",
    "BatchSize": "whole number, at least 1, or inf",
    "ChangingBatchSize": "whole number, at least 1, or inf, or a table of how it changes over rounds",
}
"""Types in words: Python's own, and those of `fedquilt.base.arguments` that a bound alone does not describe."""

_BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


@dataclass(frozen=True)
class Argument:
    """An argument of a function: its default as written in Python, None if it is required, and what it takes in words."""

    name: str
    default: str | None
    takes: str


@dataclass(frozen=True)
class FunctionDocs:
    """A function's docstring and that of its module, and its arguments."""

    text: str
    module_text: str
    arguments: tuple[Argument, ...]


def read_source(module: str, function: str) -> FunctionDocs:
    """Read what a module says of one of its functions.

    >>> found = read_source("fedquilt.simulate.dropout", "dropout")
    >>> found.text.splitlines()[0], found.arguments
    ('Let clients drop out of a round at random (McMahan 2017).',
     (Argument(name='probability', default='0.1', takes='number, at least 0, below 1'),))
    """
    tree = _tree(module)
    node = next(each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == function)
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    without = [None] * (len(positional) - len(given.defaults))
    pairs = [
        *zip(positional, [*without, *given.defaults], strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    arguments = tuple(
        Argument(each.arg, None if default is None else ast.unparse(default), _takes(each.annotation, module))
        for each, default in pairs
    )
    return FunctionDocs(ast.get_docstring(node) or "", ast.get_docstring(tree) or "", arguments)


@functools.cache
def _tree(module: str) -> ast.Module:
    root = Path(__file__).parent.parent
    if module.partition(".")[0] == root.name:
        home = root.joinpath(*module.split(".")[1:])
        file = home / "__init__.py" if home.is_dir() else home.with_suffix(".py")
    else:  # of the user's own, which was imported to be registered
        file = Path(str(sys.modules[module].__file__))
    return ast.parse(file.read_text(encoding="utf-8"))


def _takes(hint: ast.expr | None, module: str) -> str:
    """Say in words what an annotation of a module lets through."""
    match hint:
        case None:
            return "anything"
        case ast.Name(name) if name in _WORDS:
            return _WORDS[name]
        case ast.Subscript() if ast.unparse(hint) in _WORDS:
            return _WORDS[ast.unparse(hint)]
        case ast.Name(name):
            return _meant(name, module) or name
        case ast.BinOp(left, ast.BitOr(), ast.Constant(None)):
            return _takes(left, module)
        case ast.BinOp(left, ast.BitOr(), right):
            return f"{_takes(left, module)}; or {_takes(right, module)}"
        case ast.Subscript(ast.Name("Literal"), chosen):
            return " or ".join(ast.unparse(each).replace("'", '"') for each in _several(chosen))
        case ast.Subscript(ast.Name("Annotated"), several):
            first, *rest = _several(several)
            return ", ".join([_takes(first, module), *_bounds(rest)])
        case ast.Subscript(ast.Name("list" | "tuple"), inner):
            return f"list: {_takes(_several(inner)[0], module)}"
    return ast.unparse(hint)


def _several(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _bounds(rest: list[ast.expr]) -> list[str]:
    return [
        f"{_BOUNDS[each.arg]} {ast.unparse(each.value)}"
        for call in rest
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Field"
        for each in call.keywords
        if each.arg in _BOUNDS
    ]


def _meant(name: str, module: str) -> str | None:
    """Find what a name stands for, in the module or in the one that it is imported from."""
    for node in _tree(module).body:
        match node:
            case ast.Assign([ast.Name(target)], value) if target == name:
                return _takes(value, module)
            case ast.ImportFrom(str(home), names) if home.startswith("fedquilt.") and name in {n.name for n in names}:
                return _meant(name, home)
    return None
