"""Errors that a user can act on. The command line prints their text alone, without a traceback."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fedquilt.base.text import LONGEST_TEXT, visible

_LONGEST = 60
"""Characters of a name that a message shows."""

_COMPARED = 2_000
"""Names that are compared with a wrong one: comparing takes long."""


class FedquiltError(Exception):
    """Something that the user can put right; the message says what, `part` which method or wrapper it is about."""

    part: str | None = None

    def __str__(self) -> str:
        """Return the message, fit for a terminal whatever a spec, a file or a client has put into it."""
        return visible(super().__str__(), keep="\n")


class SpecError(FedquiltError):
    """A spec that cannot be run: the message names the file, the key and what would be right."""


class DataError(FedquiltError):
    """A data set that is missing or damaged."""


class ExampleError(DataError):
    """An example that cannot be read: in training, the fault of the client that holds it."""


class RunError(FedquiltError):
    """A run folder that cannot be used as asked."""


class StorageError(FedquiltError):
    """A folder that cannot be written: a full disk, a read-only one, or a folder that is gone."""


class MissingExtraError(FedquiltError):
    """A part that needs an optional dependency."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency; install it with: pip install 'fedquilt[{extra}]'")


def optional(package: str, what: str, extra: str) -> Any:
    """Import an optional dependency, or say which part needs it and which extra brings it."""
    try:
        return import_module(package)
    except ImportError:
        raise MissingExtraError(what, extra) from None


class OverflowInSumError(FedquiltError):
    """The exact sum over clients left its range. The round is not applied."""


class WorkerError(FedquiltError):
    """A worker process died again and again on one client."""


@contextmanager
def naming_part(name: str) -> Iterator[None]:
    """Note on an error which method or wrapper it comes from, so that a spec's table can be named."""
    try:
        yield
    except FedquiltError as error:
        error.part = name
        raise


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the closest known name, and list the known ones.

    >>> nearest("fed_avgm", ["fed_avg", "fed_avg_m"])
    "did you mean 'fed_avg_m'? (known: fed_avg, fed_avg_m)"
    >>> nearest("x", ["alpha", "seed"])
    'known: alpha, seed'
    """
    names = sorted(known)
    close = closest(name, names)
    listing = f"known: {listed(names)}" if names else "it takes no keys"
    return f"did you mean '{close}'? ({listing})" if close else listing


_SYNONYMS = {
    "learning_rate": ("lr",),
    "client_lr": ("lr",),
    "batch_size": ("batch",),
    "local_epochs": ("epochs",),
    "num_epochs": ("epochs",),
    "num_clients": ("clients",),
    "n_clients": ("clients",),
    "num_rounds": ("rounds",),
    "n_rounds": ("rounds",),
    "num_classes": ("classes",),
    "n_classes": ("classes",),
    "clients_per_round": ("cohort", "fraction"),
    "fraction_fit": ("fraction",),
    "cohort_size": ("cohort",),
    "participation": ("fraction",),
    "random_state": ("seed",),
    "random_seed": ("seed",),
    "num_workers": ("workers",),
    "n_jobs": ("workers",),
    "optimizer": ("method",),
    "algorithm": ("method",),
    "dataset": ("data",),
    "strategy": ("method",),
    "concentration": ("alpha",),
    "beta": ("server_momentum", "alpha"),
    "server_learning_rate": ("server_lr",),
    "metric": ("metrics",),
    "wrapper": ("wrap",),
    "fedavgm": ("fed_avg_m",),
    "weights": ("start",),
    "pretrained": ("start",),
}
"""What other libraries and papers call a thing, and what it is called here: the first that is known is meant."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most likely meant: by another word for it, or by a similar spelling.

    >>> closest("fed_agv", ["fed_avg", "fed_prox"]), closest("learning_rate", ["lr", "seed"]), closest("x", ["seed"])
    ('fed_avg', 'lr', None)
    """
    names = sorted(known)
    for synonym in _SYNONYMS.get(name.lower(), ()):
        if synonym in names:
            return synonym
    similar = difflib.get_close_matches(name[:_LONGEST], names[:_COMPARED], n=1)
    return similar[0] if similar else None


def listed(names: Sequence[str], most: int = 40, longest: int = _LONGEST) -> str:
    """List names for a message, which stays readable if there are many, or ones of more than `longest` characters.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a, b, c', 'a, b and 1 more')
    """
    shown = ", ".join(name if len(name) <= longest else f"{name[:longest]}…" for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def reason_of(error: BaseException) -> str:
    """Say what went wrong in the user's own code, and in which line, since no traceback is shown.

    The text is that of `visible`. An exception whose own text cannot be had is named all the same.

    >>> try:
    ...     int("three")
    ... except ValueError as error:
    ...     reason_of(error)
    "ValueError: invalid literal for int() with base 10: 'three' (<doctest ...>, line 2)"
    """
    kind = type(error).__name__
    try:
        words = visible(f"{kind}: {error}" if isinstance(error, Exception) or error.args else kind, LONGEST_TEXT)
    except BaseException as another:
        words = visible(f"{kind}, without a message: its __str__ raises {type(another).__name__}")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not installed(frame.filename)]
    if isinstance(error, SyntaxError) or not frames:  # a SyntaxError names the place by itself
        return words
    return f"{words} ({visible(Path(frames[-1].filename).name, 100)}, line {frames[-1].lineno})"


def installed(file: str) -> bool:
    """Say whether a file is fedquilt's, Python's or of an installed package, and not the user's own.

    >>> installed(__file__), installed("<stdin>")
    (True, False)
    """
    paths = sysconfig.get_paths()
    apart = (str(Path(__file__).parent.parent), paths["stdlib"], paths["platlib"], paths["purelib"], "<frozen")
    return file.startswith(apart)
