"""The page of a method, data set, model, partition or whatever else a spec can name, made from its source.

Nothing is run or imported for it, so that `fedquilt explain` answers at once.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fedquilt.base.errors import SpecError, closest
from fedquilt.base.registry import KINDS
from fedquilt.base.source import Argument, FunctionDocs, read_source
from fedquilt.base.text import visible

_SAMPLES: dict[str, object] = {
    "clients": 100,
    "alpha": 0.5,
    "classes": 2,
    "most": 100,
    "label": "species",
    "set": "svmguide1",
    "folder": "my-data",
    "path": "my-data.csv",
    "stored.path": "partition.npz",
    "hugging_face.path": "my-data",
}
"""What an example gives for an argument that is required: by its name, or by that of its function too."""

_SHOWN = 2
"""Arguments with a default that an example gives."""


@dataclass(frozen=True)
class Page:
    """What there is to know of something that a spec can name: `where` is the spec's table, `origin` the paper."""

    name: str
    kind: str
    where: str
    text: str
    arguments: tuple[Argument, ...]
    example: str
    origin: str


def explain(name: str) -> Page:
    """Return the page of a method, wrapper, simulation, model, data set, partition, engine, loss or metric.

    >>> page = explain("dropout")
    >>> page.kind, page.where, [argument.name for argument in page.arguments]
    ('simulation', '[[simulate]]', ['probability'])
    >>> print(page.example)
    [[simulate]]
    name = "dropout"
    probability = 0.1
    >>> explain("fed_agv")
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: nothing is called 'fed_agv'; did you mean 'fed_avg'? `fedquilt list methods` ...
    """
    for known in KINDS.values():
        if name in known:
            return _page(name, known.kind, known.where, read_source(known.home(name), name))
    near = closest(name, [each for known in KINDS.values() for each in known])
    meant = "" if near is None else f" did you mean '{near}'?"
    listing = ", ".join(list(KINDS)[1:])
    raise SpecError(
        f"nothing is called '{visible(name, 80)}';{meant} `fedquilt list methods` lists the methods, and so on: {listing}"
    )


def _page(name: str, kind: str, where: str, source: FunctionDocs) -> Page:
    from fedquilt.experiment.tables import GIVEN

    given = frozenset({"algorithm"}) if kind == "wrapper" else GIVEN.get(where.strip("[]"), frozenset())
    inside = where.startswith("[run]")  # a loss or metric is named there; its arguments are what it is called with
    arguments = () if inside else tuple(each for each in source.arguments if each.name not in given)
    example = _objective(where, name) if inside else _table(where, name, arguments)
    return Page(name, kind, where, source.text, arguments, example, source.module_text)


def _objective(where: str, name: str) -> str:
    key = where.removeprefix("[run] ")
    return f'[run]\nrounds = 50\n{key} = "{name}"' if key == "loss" else f'[run]\nrounds = 50\n{key} = ["{name}"]'


def _table(where: str, name: str, arguments: tuple[Argument, ...]) -> str:
    import tomli_w

    values: dict[str, object] = {"name": name}
    for each in arguments:
        if each.default is None:
            values[each.name] = _SAMPLES.get(f"{name}.{each.name}", _SAMPLES.get(each.name))
    for each in [each for each in arguments if each.default is not None][:_SHOWN]:
        default = _literal(each.default)
        if isinstance(default, bool | int | float | str):
            values[each.name] = default
    above = '[method]\nname = "fed_avg"\n\n' if where == "[[wrap]]" else ""
    return f"{above}{where}\n{tomli_w.dumps(values)}".rstrip()


def _literal(text: str | None) -> object:
    try:
        return ast.literal_eval(text or "None")
    except ValueError:  # a name, not a value
        return None
