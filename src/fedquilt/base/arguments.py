"""Checks a function's arguments against its annotations, and says in plain English what is wrong.

The annotations below are the vocabulary: a function that asks for a `Positive` or a `Count` needs no further checks.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PydanticUserError,
    ValidationError,
    create_model,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from fedquilt.base.errors import DataError, nearest
from fedquilt.base.schedule import Schedule, Stages, scheduled
from fedquilt.base.text import short, visible


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("plain", "{text}", {"text": text})


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise _wrong("must be a finite number")
    return value


def _whole_or_infinite(value: object) -> float:
    if (isinstance(value, int) and not isinstance(value, bool) and value >= 1) or (
        isinstance(value, float) and value == math.inf
    ):
        return value
    raise _wrong("must be an integer of 1 or more, or inf")


_TABLE = "a table such as { initial = 0.1, factor = 0.99 } or { stages = [[1, 0.1], [100, 0.01]] }"


def _changing(number: Callable[[object], float], value: object) -> object:
    """Check a number that may change over rounds; the value stays as it was written, so that a spec can be saved."""
    if isinstance(value, Schedule | Stages):
        return value
    if isinstance(value, dict):
        _check_table(number, value)
        return value
    return number(value)


def _check_table(number: Callable[[object], float], table: dict[str, object]) -> None:
    known = {"stages"} if "stages" in table else {"initial", "factor", "every", "least", "most"}
    for key in table:
        if key not in known:
            raise _wrong(f"{key}: unknown key; {nearest(key, known)}")
    try:
        made = scheduled(table)
    except (TypeError, ValueError) as error:
        text = "initial is required" if "initial" in str(error) and "missing" in str(error) else str(error)
        raise _wrong(f"is not a schedule: {text}; write {_TABLE}") from None
    firsts = [value for _, value in made.stages] if isinstance(made, Stages) else [made.initial]
    for first in firsts:
        number(int(first) if float(first).is_integer() else first)


def _positive(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong("must be a number, or a table that describes how it changes over rounds")
    if not value > 0:
        raise _wrong("must be greater than 0")
    return _finite(float(value))


def _whole_number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong("must be an integer, or a table that describes how it changes over rounds")
    if value < 1:
        raise _wrong("must be at least 1")
    return _in_memory(A_PASS, value)


def _in_memory(each: int, value: int) -> int:
    if value * each > _ALWAYS_THERE:
        from fedquilt.base.memory import require_memory

        try:
            require_memory("so many", value * each)
        except DataError as error:
            raise _wrong(f"is too large: {error}") from None
    return value


_PREFIX = "key_"
"""Sets our keys apart from names that pydantic reserves: `model_…`, `copy`, `_…`."""

A_PASS = 1000
"""Bytes that a pass over a client's data takes at least: the order of its examples is drawn before it trains."""

_ALWAYS_THERE = 10**6
"""For fewer bytes, memory is not looked at."""

InMemory = AfterValidator(functools.partial(_in_memory, 8))
"""Refuses a number of things of which this machine's memory could not hold one number each."""

Finite = Annotated[float, AfterValidator(_finite)]
Positive = Annotated[float, Field(gt=0), AfterValidator(_finite)]
NonNegative = Annotated[float, Field(ge=0), AfterValidator(_finite)]
PositiveOrInfinite = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Momentum = BelowOne
Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1), InMemory]
"""A count of things that are all made at once: clients, classes, features, the units of a layer."""
Passes = Annotated[int, Field(ge=1), AfterValidator(functools.partial(_in_memory, A_PASS))]
"""A number of passes over a client's data."""
Workers = Annotated[int, Field(ge=1), AfterValidator(functools.partial(_in_memory, 50 * 2**20))]
"""A number of processes, each of which takes 50 MiB at least."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
BatchSize = Annotated[float, PlainValidator(_whole_or_infinite)]
"""Examples a batch; `inf` is the whole of a client's data at once (B = ∞ in McMahan 2017)."""

Rate = Annotated[Any, PlainValidator(functools.partial(_changing, _positive))]
"""A positive number, or a table that says how it changes over rounds; see `fedquilt.base.schedule`."""
ChangingCount = Annotated[Any, PlainValidator(functools.partial(_changing, _whole_number))]
"""A number of passes over a client's data, or a table that says how it changes over rounds."""
ChangingBatchSize = Annotated[Any, PlainValidator(functools.partial(_changing, _whole_or_infinite))]
"""As BatchSize, or a table that says how it changes over rounds."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one argument."""

    key: str
    message: str


class ArgumentError(ValueError):
    """Arguments that a function does not take; `problems` has them one by one."""

    def __init__(self, function: str, problems: list[Problem]) -> None:
        self.problems = problems
        shown = [f"{function}: {problem.key}: {problem.message}" for problem in problems[:10]]
        more = [f"and {len(problems) - 10:,} more"] if len(problems) > 10 else []
        super().__init__("; ".join([*shown, *more]))


def check(
    function: Callable[..., object],
    arguments: Mapping[str, object],
    given: frozenset[str] = frozenset(),
    name: str | None = None,
) -> dict[str, Any]:
    """Return the arguments with defaults filled in, or raise an ArgumentError that lists every problem.

    Parameters named in `given` are left out: the caller fills them in by itself. `name` stands in for the function's own
    in messages.

    >>> def step(lr: Positive, steps: Count = 1) -> None: ...
    >>> check(step, {"lr": 1})
    {'lr': 1.0, 'steps': 1}
    >>> check(step, {"lr": -1.0, "stepz": 2})
    Traceback (most recent call last):
    fedquilt.base.arguments.ArgumentError: step: lr: must be greater than 0, got -1.0; step: stepz: unknown key;
    did you mean 'steps'? (known: lr, steps)
    """
    model = _model(function, given) if isinstance(function, Hashable) else _model.__wrapped__(function, given)
    try:
        checked = model(**{_PREFIX + key: _plain_number(value) for key, value in arguments.items()})
    except ValidationError as error:
        raise ArgumentError(name or model.__name__, _problems(error, list(model.model_fields))) from None
    more = checked.model_extra or {}
    return {name.removeprefix(_PREFIX): getattr(checked, name) for name in [*model.model_fields, *more]}


def _plain_number(value: object) -> object:
    numpy = sys.modules.get("numpy")  # whoever has one of its numbers has imported it
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


@functools.cache
def _model(function: Callable[..., object], given: frozenset[str]) -> type[BaseModel]:
    hints = _hints(function)
    fields: dict[str, Any] = {}
    extra: Literal["allow", "forbid"] = "forbid"
    for name, parameter in _parameters(function).items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = "allow"
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL and name not in given:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[_PREFIX + name] = (_from_toml(hints.get(name, Any)), default)
    config = ConfigDict(extra=extra, strict=True, arbitrary_types_allowed=True)
    title = getattr(function, "__name__", type(function).__name__)
    try:
        return create_model(title, __config__=config, **fields)
    except PydanticUserError:  # an annotation of the user's own that cannot be checked
        unchecked: dict[str, Any] = {name: (Any, default) for name, (_, default) in fields.items()}
        return create_model(title, __config__=config, **unchecked)


def takes(function: Callable[..., object], name: str) -> bool:
    """Say whether a function has a parameter of that name, which can be given by it.

    >>> takes(check, "given"), takes(check, "taken"), takes(dict, "given")
    (True, False, False)
    """
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(key == name and parameter.kind in by_name for key, parameter in _parameters(function).items())


def paths(function: Callable[..., object]) -> set[str]:
    """Return the names of the parameters that take a path.

    >>> def load(file: Path, folder: Path | str | None = None, name: str = "") -> None: ...
    >>> sorted(paths(load))
    ['file', 'folder']
    """
    return set(_paths(function) if isinstance(function, Hashable) else _paths.__wrapped__(function))


@functools.cache  # a sweep asks it of every trial
def _paths(function: Callable[..., object]) -> frozenset[str]:
    hints = _hints(function)
    every = {name: hints.get(name) for name in _parameters(function)}
    return frozenset(name for name, hint in every.items() if Path in (hint, *typing.get_args(hint)))


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some built-in functions do not say what they take
        return {"anything": inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)}


def _from_toml(hint: Any) -> Any:
    """Let a list stand for a tuple and text for a path: TOML has neither."""
    if inspect.isclass(hint) and dataclasses.is_dataclass(hint):
        return Annotated[Any, PlainValidator(functools.partial(_instance, hint))]
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    if union and any(inspect.isclass(member) and dataclasses.is_dataclass(member) for member in typing.get_args(hint)):
        return typing.Union[tuple(_from_toml(member) for member in typing.get_args(hint))]  # noqa: UP007
    members = {typing.get_origin(member) or member for member in (typing.get_args(hint) if union else (hint,))}
    if tuple in members and list not in members:
        return Annotated[hint, BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]
    if Path in members and str not in members:
        return Annotated[hint, BeforeValidator(lambda value: Path(value) if isinstance(value, str) else value)]
    return hint


def _instance(kind: type, value: object) -> object:
    """Take a record as it is: its fields are not the caller's to get wrong."""
    if isinstance(value, kind):
        return value
    raise _wrong(f"must be a {kind.__name__}")


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    try:
        if inspect.isclass(function):
            names = vars(sys.modules[function.__module__])
            return typing.get_type_hints(function.__init__, globalns=names, include_extras=True)
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        return {}  # A user's own function with annotations that cannot be resolved: its arguments go unchecked.


def _problems(error: ValidationError, fields: list[str]) -> list[Problem]:
    problems: dict[str, str] = {}
    for detail in error.errors():
        field, *inside = detail["loc"]
        key = ".".join([str(field).removeprefix(_PREFIX), *(str(part) for part in inside if isinstance(part, int))])
        problems.setdefault(key, _plain(detail, key, [field.removeprefix(_PREFIX) for field in fields]))
    return [Problem(visible(key), message) for key, message in problems.items()]


_TYPES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text in quotes",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
}


def _plain(detail: ErrorDetails, key: str, known: list[str]) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key; {nearest(key, known)}"
    if kind == "missing":
        return "is required"
    bounds = {
        "greater_than": ("gt", "greater than"),
        "greater_than_equal": ("ge", "at least"),
        "less_than": ("lt", "less than"),
        "less_than_equal": ("le", "at most"),
    }
    if kind in bounds:
        name, words = bounds[kind]
        return f"must be {words} {context[name]:g}, got {short(value)}"
    if kind == "literal_error":
        return f"must be one of {context['expected']}, got {short(value)}"
    if kind == "is_instance_of":
        wanted = context["class"]
        return f"must be {'a path in quotes' if wanted == 'Path' else f'of type {wanted}'}, got {short(value)}"
    message = _TYPES.get(kind, detail["msg"])
    return f"{message}, got {short(value)}"
