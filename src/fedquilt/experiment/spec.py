"""Specs: TOML files whose tables are the keyword arguments of registered functions.

    [run]        rounds, seed, …                       see `Options`
    [data]       name = "mnist", and its arguments     `fedquilt list datasets`
    [partition]  name = "dirichlet", …                 `fedquilt list partitions`
    [model]      name = "mnist_2nn", …                 `fedquilt list models`
    [method]     name = "fed_avg", …                   `fedquilt list methods`
    [[wrap]]     name = "fed_prox", …                  `fedquilt list wrappers`; any number, the first applied first
    [[simulate]] name = "dropout", …                   `fedquilt list simulations`; any number
    [engine]     name = "auto", …                      `fedquilt list engines`
    [[site]]     name, key                             the sites of a real federation, in the order of their clients

A name may also be an import path, "module:function", of the user's own; the spec's folder is searched first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import date, time
from pathlib import Path
from typing import Any

import tomli_w

from fedquilt.base import registry
from fedquilt.base.arguments import ArgumentError, check, paths, takes
from fedquilt.base.errors import SpecError, closest, nearest
from fedquilt.base.registry import Registry
from fedquilt.base.text import joined, short, visible
from fedquilt.data.fetch.folders import near_candidates
from fedquilt.engines.flower.roster import Member, roster_of
from fedquilt.experiment.changes import change
from fedquilt.experiment.imports import imported
from fedquilt.experiment.options import Options
from fedquilt.experiment.tables import (
    ARRAYS,
    DEFAULT_ENGINE,
    EXPERIMENT_TABLES,
    GIVEN,
    MOST_WRAPS,
    REGISTRIES,
    SIMULATE,
    SITE,
    WRAP,
)
from fedquilt.experiment.toml import Table, parse, read_text, require_plain

FEDERATION = "federation.toml"
"""The spec in the folder of a real federation."""


@dataclass(frozen=True)
class SpecTable:
    """A table of a spec: a function and its checked arguments."""

    name: str
    function: Callable[..., Any]
    arguments: Table


@dataclass(frozen=True)
class Spec:
    """A spec that was checked: every name is known and every argument fits; `folder` is where its file is."""

    source: str
    options: Options
    parts: dict[str, SpecTable]
    free: Table
    folder: Path | None = None
    sites: tuple[Member, ...] = ()

    def resolved(self) -> Table:
        """Return the spec with every default filled in, as it is written into the run folder."""
        written = {name: _given({"name": part.name, **part.arguments}) for name, part in self.parts.items()}
        tables: Table = {"run": _given(asdict(self.options))}
        for name, table in written.items():
            array, _, number = name.partition(" ")
            if number:
                tables.setdefault(array, []).append(table)
            else:
                tables[name] = table
        if self.sites:
            tables[SITE] = [asdict(site) for site in self.sites]
        return tables | {name: _given(table) for name, table in self.free.items()}

    def to_toml(self) -> str:
        """Write the resolved spec."""
        try:
            return tomli_w.dumps(self.resolved())
        except TypeError as error:
            raise SpecError(
                f"{self.source}: cannot be written as TOML: {error}; pass such values to fedquilt.train instead"
            ) from None


def unchanged(spec: Spec, sets: Iterable[str], unsets: Iterable[str]) -> Spec:
    """Return a spec that was read before; changes come too late for it."""
    if changes := [*sets, *unsets]:
        raise SpecError(f"{changes[0]}: a Spec cannot be changed any more; give changes with the file, or its tables")
    return spec


def load_spec(path: str | Path, sets: Iterable[str] = (), unsets: Iterable[str] = ()) -> Spec:
    """Read a spec from a file, take keys out of it and change others by `key=value` assignments, and check it.

    >>> import tempfile
    >>> from fedquilt.experiment.template import TEMPLATE
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "first.toml"
    ...     _ = path.write_text(TEMPLATE)
    ...     spec = load_spec(path, ["method.lr=0.05"], unsets=["method.server_momentum"])
    >>> spec.options.rounds, spec.parts["method"].name, spec.parts["method"].arguments["lr"]
    (50, 'fed_avg_m', 0.05)
    """
    path = spec_file(Path(path))
    return check_spec(change(read_tables(path), sets, unsets), source=str(path), folder=path.resolve().parent)


def spec_file(path: Path) -> Path:
    """Return the spec of a real federation, where its folder is given."""
    return path / FEDERATION if (path / FEDERATION).is_file() else path


def load_population(path: str | Path, sets: Iterable[str] = (), unsets: Iterable[str] = ()) -> Spec:
    """Read only the tables `[data]` and `[partition]` of a spec: who holds what."""
    path = Path(path)
    return check_population(change(read_tables(path), sets, unsets), source=str(path), folder=path.resolve().parent)


def read_tables(path: Path, start: str = "writes a spec to start from") -> Table:
    """Read the tables of a spec file as they are written; `start` says what `fedquilt new` is good for if there is none."""
    try:
        return parse(read_text(path))
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; `fedquilt new {path}` {start}") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: is a folder; give a spec file (or use `fedquilt resume {path}` for a run)") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: is not valid TOML: {error}") from None


def check_spec(tables: Mapping[str, Any], source: str = "spec", folder: Path | None = None) -> Spec:
    """Check a spec's tables and fill in defaults; `folder` is where the user's own functions and files are looked for."""
    require_plain(tables, source)
    require_tables(tables, source)
    options = _options(tables, source)
    for key, names in (("loss", registry.losses), ("metrics", registry.metrics), ("track", registry.trackers)):
        given = getattr(options, key) or []
        for name in [given] if isinstance(given, str) else given:
            if name not in names and ":" not in name:
                raise SpecError(f"{source}: [run] {key}: {names.unknown(name)}")
    home = ((folder or Path.cwd()) / options.import_from) if options.import_from else folder
    chosen: dict[str, tuple[Table, Registry]] = {}
    for name, known_parts in REGISTRIES.items():
        table = tables.get(name)
        if name == "engine":
            table = {"name": DEFAULT_ENGINE, **(table or {})}
        if table is None:
            raise SpecError(f"{source}: [{name}]: the table is missing; it needs a name ({', '.join(known_parts)})")
        chosen[name] = table, known_parts
    for array, known_parts in ARRAYS.items():
        chosen |= {name: (table, known_parts) for name, table in _array(tables, array, source)}
    parts = _parts(chosen, source, home, folder)
    if home is not None and any(
        ":" in name for name in [*(part.name for part in parts.values()), *_objective(options)]
    ):
        options = replace(options, import_from=str(home))
    options = _checked_objective(options, f"{source}: [run]", home, folder)
    sites = roster_of(tables.get(SITE, []), source)
    _require_apart(parts, sites, source)
    return Spec(source, options, parts, {}, folder, sites)


def _require_apart(parts: Mapping[str, SpecTable], sites: tuple[Member, ...], source: str) -> None:
    """Refuse sites whose data are not loaded one by one, and data that are loaded so without sites."""
    apart = takes(parts["data"].function, SITE)
    if sites and not apart:
        raise SpecError(
            f"{source}: [data] name: a spec with sites needs a function of your own with a parameter `site`, which returns "
            "the data of that site, or with None the server's; `fedquilt deploy init` writes one"
        )
    if apart and not sites:
        raise SpecError(f"{source}: [data] name: '{parts['data'].name}' asks for a site, but the spec has no [[site]]")
    if sites and parts["partition"].name != "natural":
        raise SpecError(f'{source}: [partition] name: every site is a client: write "natural"')
    if sites and any(name.startswith(SIMULATE) for name in parts):
        raise SpecError(f"{source}: [[{SIMULATE}]]: sites of a real federation are not simulated: take it out")


def require_tables(tables: Mapping[str, Any], source: str, more: Iterable[str] = ()) -> None:
    """Refuse a table that there is not; an experiment's file has `more` than a spec."""
    known = ["run", *REGISTRIES, *ARRAYS, SITE, *more]
    for name, table in tables.items():
        if name in ARRAYS or name in more or name == SITE:
            continue
        shown = visible(name)
        if name == "sweep":
            raise SpecError(f"{source}: [sweep]: is written [grid] now, or [tune] or [repeat]; see docs/experiments.md")
        if name in EXPERIMENT_TABLES:
            raise SpecError(f"{source}: [{name}]: this file describes many runs; use `fedquilt sweep`")
        if name not in known and not isinstance(table, dict):
            raise SpecError(f"{source}: {shown}: is outside any table; write it below one, such as [run] or [method]")
        if name not in known:
            raise SpecError(f"{source}: [{shown}]: unknown table; {nearest(name, known)}")
        if not isinstance(table, dict):
            raise SpecError(f"{source}: {name}: must be a table, [{name}], got {short(table)}")


def _objective(options: Options) -> list[str]:
    return [*([] if options.loss is None else [options.loss]), *(options.metrics or []), *(options.track or [])]


def _checked_objective(options: Options, where: str, home: Path | None, folder: Path | None) -> Options:
    from fedquilt.experiment.objective import chosen_loss, chosen_metrics, chosen_validation  # imports PyTorch

    try:
        chosen_validation(options)
    except SpecError as error:
        raise SpecError(f"{where} {error}") from None
    if options.loss is not None:
        chosen_loss(options.loss, home, f"{where} loss")
    chosen_metrics(options.metrics or [], home, f"{where} metrics")
    if options.start_skip and options.start is None:
        raise SpecError(f"{where} start_skip: lists parts that the file `start` does not fill, but there is no `start`")
    if options.start is None:
        return options
    return replace(options, start=str(Path(_found(options.start, folder)).absolute()))


def check_population(tables: Mapping[str, Any], source: str = "spec", folder: Path | None = None) -> Spec:
    """Check a spec's tables `[data]` and `[partition]`; others may be missing, and are not looked at."""
    require_plain(tables, source)
    home = tables.get("run", {}).get("import_from") if isinstance(tables.get("run"), dict) else None
    found = ((folder or Path.cwd()) / home) if isinstance(home, str) else folder
    chosen = {}
    for name in ("data", "partition"):
        if not isinstance(tables.get(name), dict):
            raise SpecError(
                f"{source}: [{name}]: the table is missing; it needs a name ({', '.join(REGISTRIES[name])})"
            )
        chosen[name] = tables[name], REGISTRIES[name]
    others = {name: tables[name] for name in ("method", WRAP) if name in tables}
    return Spec(source, Options(rounds=1), _parts(chosen, source, found, folder), others, folder)


def _array(tables: Mapping[str, Any], array: str, source: str) -> Iterator[tuple[str, Table]]:
    found = tables.get(array, [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise SpecError(f"{source}: {array}: must be an array of tables, written as [[{array}]], got {short(found)}")
    if len(found) > MOST_WRAPS:
        raise SpecError(
            f"{source}: {array}: there are {len(found):,} [[{array}]] tables; at most {MOST_WRAPS} are allowed"
        )
    for number, table in enumerate(found, start=1):
        yield f"{array} {number}", table


def _options(tables: Mapping[str, Any], source: str) -> Options:
    if "run" not in tables:
        raise SpecError(f"{source}: [run]: the table is missing; it needs at least: rounds")
    return Options(**_checked(Options, tables["run"], source, "run"))


def _parts(
    chosen: Mapping[str, tuple[Table, Registry]], source: str, home: Path | None, folder: Path | None
) -> dict[str, SpecTable]:
    """Check the tables of a spec: first every name and key, which needs no import, then what the functions say."""
    for name, (table, known) in chosen.items():
        _require_known(name, table, known, source)
    return {name: _part(name, table, known, source, home, folder) for name, (table, known) in chosen.items()}


def _require_known(table_name: str, table: Table, known: Registry, source: str) -> None:
    """Refuse a name or a key that there is not: a typo is answered before PyTorch is imported."""
    where = f"{source}: [{table_name}]"
    if "name" not in table:
        raise SpecError(f"{where} name: is required ({', '.join(known)})")
    name = table["name"]
    if not isinstance(name, str):
        raise SpecError(f"{where} name: must be text in quotes, got {short(name)}")
    if name in known:
        parameters = known.parameters(name)
        if parameters is None:
            return
        keys = set(parameters) - GIVEN.get(table_name.partition(" ")[0], frozenset())
        unknown = [key for key in table if key != "name" and key not in keys]
        if unknown:
            about = [f"{where} {key}: unknown key; {_elsewhere(table_name, key, keys)}" for key in unknown]
            raise SpecError(joined(about))
    elif known is not registry.simulations and name in registry.simulations:
        raise SpecError(
            f"{where} name: '{name}' simulates how clients behave, and is not part of a method: write it as [[{SIMULATE}]]"
        )
    elif known is registry.methods and name in registry.wrappers:
        raise SpecError(
            f"{where} name: '{name}' changes a method: write it as [[{WRAP}]], below [method] name = \"fed_avg\""
        )
    elif known is registry.wrappers and name in registry.methods:
        raise SpecError(f"{where} name: '{name}' is a method: write it in [method]; [[{WRAP}]] is for wrappers")
    elif known is registry.simulations and name in registry.wrappers:
        raise SpecError(f"{where} name: '{name}' changes a method: write it as [[{WRAP}]]")
    elif ":" not in name:
        raise SpecError(f"{where} name: {known.unknown(name)}")


def _part(
    table_name: str, table: Table, known: Registry, source: str, home: Path | None, folder: Path | None
) -> SpecTable:
    name = table["name"]
    function = known[name] if name in known else imported(name, home, f"{source}: [{table_name}] name")
    arguments = {key: value for key, value in table.items() if key != "name"}
    checked = _checked(function, arguments, source, table_name)
    checked |= {key: _found(checked[key], folder) for key in paths(function) & arguments.keys()}
    # A default of the user's own that TOML has no form for, such as a class, is left to the function.
    return SpecTable(
        name, function, {key: value for key, value in checked.items() if key in arguments or _in_toml(value)}
    )


def _found(path: Path | str, folder: Path | None) -> Path | str:
    """Return where a file is from now on: a resumed run finds it from any folder. What is not found stays as it was.

    Data sets look into the data folders besides, by `own_candidates`.
    """
    for candidate in near_candidates(Path(path), folder):
        if candidate.exists():
            return candidate.absolute() if isinstance(path, Path) else str(candidate.absolute())
    return path


def _checked(function: Callable[..., object], arguments: Table, source: str, table: str) -> Table:
    try:
        return check(function, arguments, GIVEN.get(table.partition(" ")[0], frozenset()))
    except ArgumentError as error:
        messages = {problem.key: problem.message for problem in error.problems}
        for key, message in messages.items():
            if table == "run" and message.startswith("unknown key"):
                messages[key] = f"unknown key; {_elsewhere(table, key, [each.name for each in fields(Options)])}"
        lines = [f"{source}: [{table}] {key}: {message}" for key, message in messages.items()]
        raise SpecError(joined(lines)) from None


def home_of(key: str, but: str | None = None) -> str | None:
    """Return the table of a spec that has a key of that name; not that which is `but` looked at.

    >>> home_of("rounds"), home_of("device", but="run"), home_of("lr"), home_of("nothing")
    ('run', 'engine', 'method', None)
    """
    if but != "run" and key in {each.name for each in fields(Options)}:
        return "run"
    for table in ("method", "partition", "engine", "model", "data"):
        names = REGISTRIES[table]
        taken = {each for name in names for each in names.parameters(name) or ()}
        if table != but and key in taken - GIVEN.get(table, frozenset()):
            return table
    return None


def _elsewhere(table: str, key: str, known: Iterable[str]) -> str:
    """Say where an unknown key belongs: here under another name, or in another table."""
    known = list(known)
    home = None if closest(key, known) else home_of(key, but=table)
    return nearest(key, known) if home is None else f"it is a key of [{home}]; {nearest(key, known)}"


def _in_toml(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_in_toml(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _in_toml(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str | date | time | Path)


def _given(table: Table) -> Table:
    """Leave out what is not given: TOML has no null; and write paths as text."""
    return {key: str(value) if isinstance(value, Path) else value for key, value in table.items() if value is not None}
