"""Safe arithmetic for derived keys: `eta_eff * (1 - method.server_momentum)`, `10^(k/3)`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import short, visible

LONGEST_FORMULA = 500

Number = int | float

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}
_CONSTANTS = {"inf": math.inf, "pi": math.pi}


@dataclass(frozen=True)
class Formula:
    """A formula over keys of the spec and named values.

    >>> formula = read_formula("10^(k/3) * (1 - method.server_momentum)", "[derive] method.lr")
    >>> round(formula.value({"values": {"k": -3}, "method": {"server_momentum": 0.9}}), 9)
    0.01
    """

    text: str
    where: str
    tree: ast.expr

    def value(self, tables: Mapping[str, Any]) -> Number:
        """Compute it from a spec's tables and `values`."""
        try:
            found = self._compute(self.tree, tables)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise SpecError(f"{self.where}: {short(self.text)} cannot be computed: {visible(str(error), 80)}") from None
        if isinstance(found, float) and math.isnan(found):
            raise SpecError(f"{self.where}: {short(self.text)} is not a number")
        return found

    def _compute(self, node: ast.expr, tables: Mapping[str, Any]) -> Number:
        match node:
            case ast.Constant(value):
                return _number(value)
            case ast.Name() | ast.Attribute():
                return self._named(_dotted(node), tables)
            case ast.UnaryOp(op, operand):
                inner = self._compute(operand, tables)
                return -inner if isinstance(op, ast.USub) else inner
            case ast.BinOp(left, op, right):
                first, second = self._compute(left, tables), self._compute(right, tables)
                return _power(first, second) if isinstance(op, ast.Pow) else _BINARY[type(op)](first, second)
            case ast.Call(ast.Name(name), arguments):
                return _number(_FUNCTIONS[name](*(self._compute(each, tables) for each in arguments)))
        raise AssertionError(ast.dump(node))  # read_formula lets nothing else through

    def _named(self, name: str, tables: Mapping[str, Any]) -> Number:
        table, dot, key = name.partition(".")
        values = tables.get("values", {})
        if not dot and name in _CONSTANTS and name not in values:
            return _CONSTANTS[name]
        inner = values if not dot else tables.get(table, {})
        if not isinstance(inner, Mapping) or (key or name) not in inner:
            known = [
                *values,
                *(
                    f"{outer}.{key}"
                    for outer, content in tables.items()
                    if outer != "values" and isinstance(content, Mapping)
                    for key in content
                ),
            ]
            raise SpecError(f"{self.where}: {visible(name, 80)}: there is no such value; {nearest(name, known)}")
        found = inner[key or name]
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise SpecError(f"{self.where}: {visible(name, 80)}: must be a number, got {short(found)}")
        return found


def read_formula(text: object, where: str) -> Formula:
    """Read a formula, or raise a SpecError: numbers, names, + − * / // % ^, parentheses and a few functions."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = repr(text)
    if not isinstance(text, str) or len(text) > LONGEST_FORMULA:
        raise SpecError(f'{where}: must be a formula in quotes, such as "eta_eff * (1 - beta)", got {short(text)}')
    try:
        tree = ast.parse(text.strip().replace("^", "**"), mode="eval").body
        _require_arithmetic(tree, where, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(f"{where}: {short(text)} is not a formula") from None
    return Formula(text, where, tree)


def _require_arithmetic(node: ast.expr, where: str, text: str) -> None:
    match node:
        case ast.Constant(value) if isinstance(value, int | float) and not isinstance(value, bool):
            return
        case ast.Name() | ast.Attribute() if _dotted(node):
            return
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            _require_arithmetic(operand, where, text)
        case ast.BinOp(left, op, right) if type(op) in _BINARY or isinstance(op, ast.Pow):
            _require_arithmetic(left, where, text)
            _require_arithmetic(right, where, text)
        case ast.Call(ast.Name(name), arguments, []):
            if name not in _FUNCTIONS:
                raise SpecError(f"{where}: {visible(name, 40)}: there is no such function; {nearest(name, _FUNCTIONS)}")
            for each in arguments:
                _require_arithmetic(each, where, text)
        case _:
            raise SpecError(
                f"{where}: {short(text)}: a formula has numbers, names, + - * / // % ^, parentheses and "
                f"{', '.join(_FUNCTIONS)}"
            )


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(inner, name) if before := _dotted(inner):
            return f"{before}.{name}"
    return ""


def _power(base: Number, exponent: Number) -> Number:
    """Return a power, whole where both are; in floating point, so that it takes no time, however large it is."""
    found = math.pow(base, exponent)
    whole = isinstance(base, int) and isinstance(exponent, int) and exponent >= 0 and abs(found) < 2**53
    return int(found) if whole else found


def _number(value: object) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{short(value)} is not a number")
    return value
