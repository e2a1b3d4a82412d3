"""Reads a run folder: all of it, checked. What is damaged is named, and nothing is taken from it.

Every command that reads a run reads it here. A damaged record is lost, and the others count; a damaged checkpoint is passed
over for another; a damaged spec ends the reading, since it says what the run is.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedquilt.algorithm.state import RunState
from fedquilt.analysis.curves import History
from fedquilt.base.arguments import ArgumentError, check
from fedquilt.base.errors import DataError, RunError, listed, nearest
from fedquilt.base.text import counted
from fedquilt.experiment import checkpoint
from fedquilt.experiment.holdings import Holdings, read_holdings
from fedquilt.experiment.options import Options
from fedquilt.experiment.records import read_client_accuracies, read_record
from fedquilt.experiment.sealed import (
    EDITED,
    DamagedError,
    edited_text,
    unsealed_json,
    unsealed_text,
)
from fedquilt.experiment.tables import ARRAYS, SITE
from fedquilt.partition.stored import describe_stored

SPEC = "spec.toml"
EXPERIMENT = "experiment.toml"
"""The resolved file of an experiment, beside the folders of its trials."""
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
CLIENT_ACCURACIES = "clients.json"
PARTITION = "partition.npz"
POPULATION = "population.json"
ERROR = "error.txt"
GIVEN_UP = "given_up.txt"
LOG = "log.txt"
CHECKPOINTS = "checkpoints"
ASIDE = "set_aside"
NEWEST, BEST = "round", "best"
"""How the names of checkpoints begin."""

Read = TypeVar("Read")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is good."""

    path: Path
    run: RunState
    about: dict[str, str]


@dataclass(frozen=True)
class Contents:
    """What a run folder holds that is good, and what was found damaged.

    `history` has the intact records; `lost` the rounds, up to the last one known, whose records are not;
    `damaged_lines` are those of `metrics.jsonl`, counted from 1.
    `client_accuracies` are those on clients' own test examples, `holdings` who holds what, `environment` the machine.
    `saved` is the checkpoint to continue from; `unusable` are those that cannot be used, or not with the records there are.
    """

    tables: dict[str, Any]
    spec_checked: bool
    history: History
    lost: tuple[range, ...]
    damaged_lines: tuple[int, ...]
    saved: Saved | None
    unusable: tuple[Path, ...]
    client_accuracies: list[float] | None
    holdings: Holdings | None
    environment: dict[str, Any] | None
    error: str | None
    damage: tuple[str, ...]

    @property
    def round(self) -> int:
        """The last round that is known to be done."""
        return max(self.history.last, 0 if self.saved is None else self.saved.run.round)

    def start(self, folder: Path, from_start: bool = False) -> Saved | None:
        """Return the checkpoint to continue from, or none to begin anew; refuse if all checkpoints are damaged or gone."""
        if self.saved is None and (self.unusable or self.checkpoints_gone) and not from_start:
            name = shlex.quote(str(folder))
            why = f"{', '.join(path.name for path in self.unusable)}: damaged"
            if not self.unusable:
                why = f"{counted(len(self.history), 'round')} are recorded, and their checkpoints are missing"
            raise RunError(
                f"{folder}: cannot continue: no intact checkpoint is left ({why}). Nothing was changed. "
                f"`fedquilt resume {name} --from-start` (in Python, from_start=True) trains again from the first round, "
                f"and moves the present files to {folder / ASIDE}"
            )
        return None if from_start else self.saved

    @property
    def checkpoints_gone(self) -> bool:
        """Whether checkpoints are missing that the records show to have been written.

        A run that is killed before its first checkpoint has records too, of all rounds if they are short, but of less time
        than one is written after.
        """
        records, run = self.history.records, self.tables.get("run", {})
        if self.saved is not None or self.unusable or not records:
            return False
        seconds = sum(record["seconds"] - 0.001 for record in records[:-1])
        due = run.get("checkpoint_seconds", Options.checkpoint_seconds)
        return bool(seconds > due)

    def lost_since(self, round_: int) -> bool:
        """Say whether the record of a round after that one is lost."""
        return any(rounds.stop - 1 > round_ for rounds in self.lost)


def read_contents(folder: Path) -> Contents:
    """Read and check everything that a run folder holds; raise a RunError where there is no run, or its spec is damaged."""
    if not (folder / SPEC).exists():
        raise RunError(_no_run(folder))
    try:
        return _read(folder)
    except OSError as error:
        raise RunError(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from None


def no_folder(folder: Path) -> str:
    """Say that there is no such folder, and which runs and sweeps there are beside it."""
    beside = [*_holding(SPEC, folder.parent), *_holding(EXPERIMENT, folder.parent)]
    advice = nearest(folder.name, beside) if beside else "nor a run beside it; `fedquilt run SPEC` makes one"
    return f"{folder}: there is no such folder; {advice}"


def _holding(file: str, folder: Path) -> list[str]:
    """Return the names of the folders in a folder that hold such a file."""
    return sorted(path.parent.name for path in folder.glob(f"*/{file}"))


def _no_run(folder: Path) -> str:
    """Say what is there instead of a run."""
    if not folder.exists():
        return no_folder(folder)
    inside = _holding(SPEC, folder)
    if not inside:
        return f"{folder}: holds no run (there is no {SPEC} in it)"
    return (
        f"{folder}: holds no run itself, but {counted(len(inside), 'run')}, as the folder of a sweep does "
        f"({listed(inside, 5)}): name one of them, or compare them with `fedquilt report {shlex.quote(str(folder))}`"
    )


def _read(folder: Path) -> Contents:
    # Checkpoints come before records: while a run goes on, a record is written before the checkpoint that needs it.
    good, bad = _read_checkpoints(checkpoint_paths(folder))
    records, lines = _read_records(folder / METRICS)
    saved, lost = _chosen(good, [record["round"] for record in records])
    damage = [*bad.values(), *_read_checkpoints(checkpoint_paths(folder, BEST))[1].values()]
    if lines or lost:
        damage.append(_about_records(folder / METRICS, lines, lost, len(records)))
    paths = [path for path, _ in good]
    passed_over = [] if saved is None else paths[: paths.index(saved.path)]
    damage += [
        f"{path}: is not used, because records before it are lost; they are computed again from {saved.path.name}"
        for path in passed_over
        if saved is not None
    ]
    client_accuracies = _or_damage(folder / CLIENT_ACCURACIES, read_client_accuracies, damage)
    holdings = _or_damage(folder / POPULATION, read_holdings, damage)
    error = _or_damage(folder / ERROR, lambda content: unsealed_text(content).strip(), damage)
    environment = _or_damage(folder / ENVIRONMENT, lambda content: unsealed_json(content, indent=2), damage)
    if (folder / PARTITION).exists():
        try:
            describe_stored(folder / PARTITION)
        except DataError as why:
            damage.append(f"{why}; `fedquilt resume` writes it again")
    kept = (
        "" if saved is None else f", and so is the checkpoint of round {saved.run.round}: `fedquilt export` can read it"
    )
    still_good = f"The records of {counted(len(records), 'round')} are intact{kept}"
    tables, checked = _read_spec(folder / SPEC, still_good)
    if not checked:
        damage.append(f"{folder / SPEC}: was changed by hand, as its last line says; it is used as it is")
    unusable = (*bad, *passed_over)
    history = History(records, 0 if saved is None else saved.run.round)
    return Contents(
        tables=tables,
        spec_checked=checked,
        history=history,
        lost=lost,
        damaged_lines=tuple(lines),
        saved=saved,
        unusable=unusable,
        client_accuracies=client_accuracies,
        holdings=holdings,
        environment=environment,
        error=error,
        damage=tuple(damage),
    )


def _chosen(good: Sequence[tuple[Path, Saved | int]], rounds: Sequence[int]) -> tuple[Saved | None, tuple[range, ...]]:
    """Choose the newest of the checkpoints before which the fewest records are lost; return those that then are."""
    recorded = max(rounds, default=0)
    numbers = [each if isinstance(each, int) else each.run.round for _, each in good]
    if not numbers:
        return None, _gaps(rounds, recorded)
    lost = _gaps(rounds, max(recorded, *numbers))
    best = min(range(len(good)), key=lambda index: (_count(lost, numbers[index]), -numbers[index]))
    path, found = good[best]
    saved = found if isinstance(found, Saved) else Saved(path, *checkpoint.load(path))
    return saved, _gaps(rounds, max(recorded, saved.run.round))


def _or_damage(path: Path, read: Callable[[bytes], Read], damage: list[str]) -> Read | None:
    """Read a file, or note how it is damaged."""
    try:
        return read(path.read_bytes()) if path.exists() else None
    except DamagedError as why:
        damage.append(f"{path}: is damaged: {why}; it is not used")
        return None


def _read_spec(path: Path, still_good: str) -> tuple[dict[str, Any], bool]:
    """Return the tables of a run's spec, and whether they are as they were written, not changed by hand."""
    content = path.read_bytes()
    if not content.strip():
        raise RunError(f"{path}: is damaged: it is empty. Restore an intact copy. {still_good}")
    edited = edited_text(content)
    try:
        tables = tomllib.loads(unsealed_text(content) if edited is None else edited)
    except (ValueError, RecursionError) as why:  # damage, or not TOML
        todo = f"If that was on purpose, change its last line to `# check: {EDITED}`; otherwise restore an intact copy"
        if edited is not None:
            todo = "Correct it, or restore an intact copy"
        raise RunError(f"{path}: is damaged, or was changed by hand: {why}. {todo}. {still_good}") from None
    for name, table in tables.items():
        inner = table if name in (*ARRAYS, SITE) and isinstance(table, list) else [table]
        if not all(isinstance(each, dict) for each in inner):
            raise RunError(f"{path}: {name}: must be a table, [{name}]")
    try:
        check(Options, tables.get("run", {}))
    except ArgumentError as error:
        raise RunError("\n".join(f"{path}: [run] {each.key}: {each.message}" for each in error.problems)) from None
    return tables, edited is None


def _read_records(path: Path) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return the good records, and the damaged lines by number with what is wrong."""
    records: list[dict[str, Any]] = []
    damaged: dict[int, str] = {}
    *lines, rest = path.read_bytes().split(b"\n") if path.exists() else [b""]
    for number, line in enumerate(lines, start=1):
        try:
            record = read_record(line + b"\n")
        except DamagedError as why:
            damaged[number] = str(why)
            continue
        before = records[-1]["round"] if records else 0
        if record["round"] <= before:
            damaged[number] = f"round {record['round']} follows round {before}"
            continue
        records.append(record)
    if rest:
        damaged[len(lines) + 1] = "it is unfinished"
    return records, damaged


def _gaps(rounds: Sequence[int], done: int) -> tuple[range, ...]:
    """Return the rounds up to `done` that are not among those given, which rise.

    >>> _gaps([1, 2, 4, 8], 9)
    (range(3, 4), range(5, 8), range(9, 10))
    """
    pairs = zip([0, *rounds], [*rounds, done + 1], strict=True)
    return tuple(range(before + 1, after) for before, after in pairs if after - before > 1)


def _count(lost: Sequence[range], last: int) -> int:
    return sum(max(min(rounds.stop, last + 1) - rounds.start, 0) for rounds in lost)


def _about_records(path: Path, lines: dict[int, str], lost: Sequence[range], good: int) -> str:
    words = [f"line {number} is damaged ({why})" for number, why in list(lines.items())[:3]]
    words += [f"{len(lines) - 3} more lines are damaged"] if len(lines) > 3 else []
    consequence = f"the records of {spelled(lost)} are lost" if lost else "no earlier record is lost"
    return f"{path}: {', '.join([*words, consequence])}; the records of {counted(good, 'round')} are intact"


def spelled(lost: Sequence[range]) -> str:
    """Write rounds.

    >>> spelled([range(3, 4), range(5, 8)])
    'rounds 3, 5 to 7'
    """
    parts = [str(each.start) if len(each) == 1 else f"{each.start} to {each.stop - 1}" for each in lost]
    more = f" and {len(parts) - 5} more ranges" if len(parts) > 5 else ""
    single = len(lost) == 1 and len(lost[0]) == 1
    return f"{'round' if single else 'rounds'} {', '.join(parts[:5])}{more}"


def read_saved(folder: Path) -> Saved | None:
    """Read the newest intact checkpoint; no other file is looked at."""
    good, _ = _read_checkpoints(checkpoint_paths(folder))
    newest = good[0][1] if good else None
    return newest if isinstance(newest, Saved) else None


def read_best(folder: Path) -> Saved | None:
    """Read the best model, if it is kept: the newest, since those before it were best before. Damaged, it is a RunError."""
    paths = checkpoint_paths(folder, BEST)
    good, bad = _read_checkpoints(paths[:1])
    if bad:
        raise RunError(bad[paths[0]])
    best = good[0][1] if good else None
    return best if isinstance(best, Saved) else None


def checkpoint_paths(folder: Path, kind: str = NEWEST) -> list[Path]:
    """Return the checkpoints there are, of the newest rounds or of the best ones, the newest first."""
    found = [path for path in (folder / CHECKPOINTS).glob(f"{kind}-*.safetensors") if _number(path).isdecimal()]
    return sorted(found, key=number_of, reverse=True)


def number_of(path: Path) -> int:
    """Return the round of a checkpoint by its name."""
    return int(_number(path))


def _number(path: Path) -> str:
    return path.stem.partition("-")[2]


def _read_checkpoints(paths: Sequence[Path]) -> tuple[list[tuple[Path, Saved | int]], dict[Path, str]]:
    """Return the intact ones, all but the newest by their round alone, and what is wrong with the others."""
    good: list[tuple[Path, Saved | int]] = []
    bad: dict[Path, str] = {}
    for path in paths:
        try:
            found = Saved(path, *checkpoint.load(path))
        except RunError as error:
            if path.exists():  # a run that goes on removes those it no longer needs
                bad[path] = f"{error}; it is not used"
            continue
        if number_of(path) != found.run.round:
            bad[path] = f"{path}: is damaged: it holds round {found.run.round}; it is not used"
        else:
            good.append((path, found.run.round if good else found))
    return good, bad
