"""What Ctrl-C, SIGTERM and SIGHUP do to a run: one KeyboardInterrupt, and only where it can do no harm.

While signals are `taken`, they raise only inside `allowed()`. One that arrives elsewhere, while something is saved say, is
remembered and raised by the next `allowed()`. However many arrive, and however soon after another, what the first one sets
off is not broken off by the second.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN = 5.0
"""Seconds after which a further signal raises again inside `allowed()`: what the first one set off may hang."""

Handler = Callable[[int, FrameType | None], Any] | int | None

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class _State:
    taken = False
    open = False
    waiting = False
    raised = -AGAIN


def take(*signals: signal.Signals) -> dict[signal.Signals, Handler]:
    """Take signals over for good, and return what handled them before.

    Only in the main thread; handlers of the caller's own stay, and what the process was told to ignore (nohup).
    """
    if _State.taken or threading.current_thread() is not threading.main_thread():
        return {}
    usual = (signal.default_int_handler, signal.SIG_DFL)
    before = {each: signal.getsignal(each) for each in signals if signal.getsignal(each) in usual}
    _State.taken, _State.open, _State.waiting, _State.raised = True, False, False, -AGAIN
    for each in before:
        signal.signal(each, _handle)
    return before


@contextmanager
def taken(*signals: signal.Signals) -> Iterator[None]:
    """Take signals over, as `take` does, until the end of a block."""
    outer = _State.taken
    before = take(*signals)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        if not outer and _ours():
            _State.taken = False


def ignore(*signals: signal.Signals) -> None:
    """Ignore what was taken, at the very end of a process: Python itself would let it be killed while it closes down."""
    for each in signals:
        if signal.getsignal(each) is _handle:
            signal.signal(each, signal.SIG_IGN)


@contextmanager
def allowed() -> Iterator[None]:
    """Let signals raise KeyboardInterrupt here; whoever catches it calls `caught()` first."""
    if not _ours():
        yield
        return
    _State.open = True
    try:
        check()
        yield
    finally:
        _State.open = False


@contextmanager
def held() -> Iterator[None]:
    """Let nothing interrupt what is done here; what arrived meanwhile is raised at the end, if it was allowed before."""
    if not _ours():
        yield
        return
    before, _State.open = _State.open, False
    try:
        yield
    finally:
        _State.open = before
    if before:
        check()


def hold() -> None:
    """Let nothing interrupt what follows, until the next `allowed()`, which raises what arrived before or meanwhile."""
    if _ours():
        _State.open = False


def caught() -> None:
    """Let nothing interrupt what follows a KeyboardInterrupt, and forget further signals: they asked for the same."""
    if _ours():
        _State.open = _State.waiting = False


def check() -> None:
    """Raise KeyboardInterrupt if a signal is waiting."""
    if _State.waiting:
        _State.waiting, _State.raised = False, time.monotonic()
        raise KeyboardInterrupt


def _ours() -> bool:
    return _State.taken and threading.current_thread() is threading.main_thread()


def _handle(number: int, frame: FrameType | None) -> None:
    _State.waiting = True
    if _State.open and time.monotonic() - _State.raised >= AGAIN:
        check()
