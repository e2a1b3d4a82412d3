"""What may stop a client from outside: somebody who presses Ctrl-C, and a limit of time.

Python raises both in the middle of whatever runs, and a client's own code can raise KeyboardInterrupt as well. Which of the
two it was, the system knows: it notes every signal that it delivers.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

_NO_REQUEST = {getattr(signal, name) for name in ("SIGALRM", "SIGCHLD", "SIGWINCH") if hasattr(signal, name)}
"""Signals that do not ask for an end."""


_OUTSIDE = "comes_from_outside"
"""The attribute of an exception that says so."""


class _Notes(NamedTuple):
    """A pipe that the system writes the numbers of signals into, and what tells that it is still the same one."""

    reader: int
    identity: tuple[int, int]


_noted: list[_Notes] = []
"""Where signals are noted, from the outermost watch to the innermost."""


class TooSlowError(BaseException):
    """A client took longer than it may. Not an Exception, which a client's own code may well catch."""


@contextmanager
def noting_signals() -> Iterator[None]:
    """Note signals, so that `comes_from_outside` knows of them; only the main thread is ever sent any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _noted.append(_Notes(reader, _identity(reader)))
    try:
        yield
    finally:
        _noted.pop()
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        for end in (reader, writer):
            with suppress(OSError):  # a client may have closed it
                os.close(end)


def comes_from_outside(error: BaseException) -> bool:
    """Say whether an exception that was raised in a client's code is none of its own, and must be passed on."""
    if isinstance(error, TooSlowError):
        return True
    if not isinstance(error, KeyboardInterrupt):
        return False
    if not hasattr(error, _OUTSIDE):  # notes can be read only once, and several callers ask about the same exception
        setattr(error, _OUTSIDE, _end_was_requested())
    return bool(getattr(error, _OUTSIDE))


def _end_was_requested() -> bool:
    """Read the notes, and say whether there was a signal that asks for an end."""
    if not _noted:  # nobody took notes; workers ignore Ctrl-C
        return multiprocessing.parent_process() is None
    try:
        return any(number not in _NO_REQUEST for number in os.read(_noted[-1].reader, 2**16))
    except BlockingIOError:
        return False
    except OSError:  # a client closed it; in doubt, it is Ctrl-C
        return True


def descriptors_are_open() -> bool:
    """Say whether the pipe of `noting_signals` is still there: a client that closes file descriptors closes it too."""
    return not _noted or _identity(_noted[-1].reader) == _noted[-1].identity


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        about = os.fstat(descriptor)
    except OSError:
        return (-1, -1)
    return about.st_dev, about.st_ino


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TooSlowError in this thread, the main one, when so many seconds have passed.

    Best effort: code in C that does not come back to Python is not interrupted.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _too_slow)
    begun = time.monotonic()
    # Again and again: a client's code may catch everything.
    outer, interval = signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, 1.0))
    try:
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # it may have run out just now, before it was stopped
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if outer:  # somebody else's timer goes on
                left = max(outer - (time.monotonic() - begun), 1e-3)
                signal.setitimer(signal.ITIMER_REAL, left, interval)


@contextmanager
def no_timer_left() -> Iterator[None]:
    """Stop a timer that a client has set and left running: its signal would end the process, with another client in it."""
    begun = signal.getitimer(signal.ITIMER_REAL)[0]
    try:
        yield
    finally:
        if not begun:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _too_slow(*_: object) -> None:
    raise TooSlowError
