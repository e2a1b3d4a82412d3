"""Dotted keys of an experiment file, such as `method.lr`: how they are read, set, shortened and written."""

from __future__ import annotations

import copy
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from fedquilt.base.errors import SpecError, nearest
from fedquilt.base.text import short, visible
from fedquilt.experiment.changes import names_first, put
from fedquilt.experiment.options import Options
from fedquilt.experiment.tables import ARRAYS, DEFAULT_ENGINE, GIVEN, REGISTRIES
from fedquilt.experiment.toml import Table

VALUES = "values"
"""The table of named numbers that derived keys are computed from."""

SPEC_TABLES = ("run", *REGISTRIES, *ARRAYS)
VARYING_TABLES = (*SPEC_TABLES, VALUES)
"""Tables whose keys an experiment can vary."""

RUN_KEYS = tuple(field.name for field in fields(Options))
"""Keys of `[run]`."""

LONGEST_NAME = 200
"""Bytes of a folder's name; file systems take 255."""

TAKEN = frozenset({"report", "set_aside", "experiment.toml", "search.db", "mlflow.db"})
"""What a sweep's folder has beside its trials."""


def flattened(tables: Mapping[str, Any], where: str) -> Table:
    """Write tables of a spec as dotted keys; lists of tables stay whole. A quoted key is already dotted.

    >>> flattened({"method": {"name": "fed_avg", "lr": 0.1}, "run.seed": 3, "wrap": []}, "here")
    {'method.name': 'fed_avg', 'method.lr': 0.1, 'run.seed': 3, 'wrap': []}
    """
    keys: Table = {}
    for name, value in tables.items():
        table, dot, _ = name.partition(".")
        if table not in VARYING_TABLES:
            raise SpecError(f"{where}: {visible(name, 80)}: is not a table of a spec; {nearest(table, VARYING_TABLES)}")
        if name in ARRAYS and not isinstance(value, list):
            raise SpecError(f"{where}: {name}: must be a list of tables, such as [{{ name = … }}], got {short(value)}")
        if dot or name in ARRAYS:
            found = {name: value}
        elif isinstance(value, dict):
            found = {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            raise SpecError(f"{where}: {name}: must be a table, such as {{ name = … }}, got {short(value)}")
        for key in found:
            if key in keys:
                raise SpecError(f"{where}: {visible(key, 80)}: is given twice")
        keys |= found
    return keys


def lists(table: object, where: str) -> dict[str, list[Any]]:
    """Check a table of lists of values; a key may be written `"method.lr"` or, without quotes, `method.lr`.

    >>> lists({"method.lr": [0.1, 0.2], "run": {"seed": [1, 2]}}, "[grid]")
    {'method.lr': [0.1, 0.2], 'run.seed': [1, 2]}
    """
    if not isinstance(table, dict):
        raise SpecError(f"{where}: must be a table of lists, got {short(table)}")
    found: dict[str, list[Any]] = {}
    for name, value in table.items():
        inner = {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
        for key, values in inner.items():
            shown = visible(key, 80)
            head, dot, _ = key.partition(".")
            if not dot:
                raise SpecError(f'{where} {shown}: write the table too, as in "method.{shown}"')
            if head not in VARYING_TABLES:
                raise SpecError(f"{where} {shown}: there is no table {head}; {nearest(head, VARYING_TABLES)}")
            if not isinstance(values, list) or not values:
                raise SpecError(f'{where} "{shown}": must be a list of values, got {short(values)}')
            if key in found:
                raise SpecError(f'{where} "{shown}": is given twice')
            found[key] = values
            labels(values, f'{where} "{shown}"')
    return found


def assign(tables: Table, keys: Mapping[str, Any], where: str) -> None:
    """Set dotted keys of a spec's tables, and add to its lists of tables.

    Keys that only another function takes are dropped where one is named anew. Wrappers are added to those there are, so
    that cases of two axes can bring one each.

    >>> tables = {"method": {"name": "fed_avg_m", "server_momentum": 0.9}, "wrap": [{"name": "fed_ir"}]}
    >>> assign(tables, {"method.name": "fed_avg", "wrap": [{"name": "fed_prox", "mu": 0.1}]}, "here")
    >>> tables
    {'method': {'name': 'fed_avg'}, 'wrap': [{'name': 'fed_ir'}, {'name': 'fed_prox', 'mu': 0.1}]}
    """
    for key, value in names_first(keys.items()):
        if key in ARRAYS:
            tables[key] = [*tables.get(key, []), *copy.deepcopy(value)]
        else:
            put(tables, key, copy.deepcopy(value), where)


def takes(tables: Mapping[str, Any], key: str) -> bool | None:
    """Say whether the function that a spec's table names takes a key; None where that cannot be known.

    >>> tables = {"method": {"name": "fed_avg"}, "wrap": [{"name": "fed_prox"}]}
    >>> takes(tables, "method.lr"), takes(tables, "method.server_momentum"), takes(tables, "wrap.1.mu")
    (True, False, True)
    >>> takes(tables, "wrap.2.mu"), takes(tables, "run.seed"), takes(tables, "values.eta")
    (False, True, None)
    """
    table, _, name = key.partition(".")
    if table == "run":
        return name in RUN_KEYS
    inner = tables.get(table)
    if key in ARRAYS:  # the whole list
        return None
    if table in ARRAYS:
        number, _, name = name.partition(".")
        if not isinstance(inner, list) or number not in map(str, range(1, len(inner) + 1)):
            return False
        inner = inner[int(number) - 1]
    known = (REGISTRIES | ARRAYS).get(table)
    if known is None or name == "name" or not isinstance(inner, dict):
        return None
    function = inner.get("name", DEFAULT_ENGINE if table == "engine" else None)
    if not isinstance(function, str) or function not in known:
        return None
    parameters = known.parameters(function)
    return None if parameters is None else name.partition(".")[0] in set(parameters) - GIVEN.get(table, frozenset())


def short_names(keys: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Shorten keys to their last part where that names one of them alone.

    >>> short_names(["method.lr", "run.seed", "partition.seed"])
    {'method.lr': 'lr', 'run.seed': 'run.seed', 'partition.seed': 'partition.seed'}
    """
    keys = list(dict.fromkeys(keys))
    ends = Counter([key.rpartition(".")[2] for key in keys]) + Counter(taken)
    return {key: end if ends[end := key.rpartition(".")[2]] == 1 else key for key in keys}


def label(value: object, exact: bool = False) -> str:
    """Write a value as the name of a case.

    >>> label(0.1), label(10 ** (-1 / 3)), label(float("inf")), label(True), label({"initial": 0.1, "factor": 0.99})
    ('0.1', '0.464159', 'inf', 'true', 'initial=0.1,factor=0.99')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not exact:
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={label(inner, exact)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return "+".join(label(inner, exact) for inner in value) or "none"
    return str(value)


def short_label(keys: Mapping[str, Any]) -> str:
    """Write keys and their values, the keys as short as tells them apart.

    >>> short_label({"method.lr": 0.1, "method.epochs": 5})
    'lr=0.1,epochs=5'
    """
    names = short_names(keys)
    return label({names[key]: value for key, value in keys.items()})


def labels(values: Sequence[Any], where: str) -> list[str]:
    """Write values as names of cases, in full where they would otherwise be the same; refuse a value that stands twice."""
    written = [label(value) for value in values]
    if len(set(written)) < len(values):
        written = [label(value, exact=True) for value in values]
    for number, text in enumerate(written):
        if text in written[:number]:
            raise SpecError(f"{where}: the value {visible(text, 40)} is in the list twice")
    return written


def folder_name(pieces: Sequence[str]) -> str:
    """Name a folder for what is in it; what no folder can be called is replaced, and a digest tells it apart.

    >>> folder_name(["FedAvg", "lr=0.1", "seed=1"]), folder_name(["own/rows.csv"])
    ('FedAvg,lr=0.1,seed=1', 'own_rows.csv-b6a3ccc8137a1d77')
    >>> folder_name(["report"])
    'report-845e91831319e89c'
    """
    name = ",".join(pieces) or "trial"
    plain = re.sub(r'[/\\:*?"<>|]', "_", "".join(each if each.isprintable() else "_" for each in name)).strip(" .")
    if plain == name and len(name.encode()) <= LONGEST_NAME and name.lower() not in TAKEN:
        return name
    digest = hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()[:16]
    cut = plain.encode(errors="ignore")[: LONGEST_NAME - 20].decode(errors="ignore")
    return f"{cut}-{digest}"
