"""Errors that a user can act on. The command line prints their text alone, without a traceback."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class FedquiltError(Exception):
    """Something that the user can put right; the message says what, `part` which method or wrapper it is about."""

    part: str | None = None


class SpecError(FedquiltError):
    """A spec that cannot be run: the message names the file, the key and what would be right."""


class DataError(FedquiltError):
    """A data set that is missing or damaged."""


class ExampleError(DataError):
    """An example that cannot be read: in training, the fault of the client that holds it."""


class RunError(FedquiltError):
    """A run folder that cannot be used as asked."""


class MissingExtraError(FedquiltError):
    """A part that needs an optional dependency."""

    def __init__(self, what: str, extra: str) -> None:
        """Name the part and the extra that brings it."""
        super().__init__(f"{what} needs an optional dependency; install it with: pip install 'fedquilt[{extra}]'")


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
    close = difflib.get_close_matches(name, names, n=1)
    listing = f"known: {', '.join(names)}" if names else "no keys are taken here"
    return f"did you mean '{close[0]}'? ({listing})" if close else listing


def told(error: Exception) -> str:
    """Say what went wrong in the user's own code, and in which line, since no traceback is shown.

    >>> try:
    ...     int("three")
    ... except ValueError as error:
    ...     told(error)
    "ValueError: invalid literal for int() with base 10: 'three' (<doctest ...>, line 2)"
    """
    words = f"{type(error).__name__}: {error}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not installed(frame.filename)]
    if isinstance(error, SyntaxError) or not frames:  # a SyntaxError names the place by itself
        return words
    return f"{words} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def installed(file: str) -> bool:
    """Say whether a file is fedquilt's, Python's or of an installed package, and not the user's own.

    >>> installed(__file__), installed("<stdin>")
    (True, False)
    """
    paths = sysconfig.get_paths()
    apart = (str(Path(__file__).parent), paths["stdlib"], paths["platlib"], paths["purelib"], "<frozen")
    return file.startswith(apart)
