"""A process that runs clients' code must come out of it as it went in, for the sake of the next client."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedquilt.base.errors import FedquiltError
from fedquilt.compute.interrupts import TooSlowError, comes_from_outside, descriptors_are_open, no_timer_left
from fedquilt.compute.pinned import pin_again
from fedquilt.compute.replica import Replica


class SpoiledError(FedquiltError):
    """A client changed its process for good. A worker is replaced then; the inline engine has nobody to replace it by."""


@contextmanager
def alone(clients: Sequence[int], replica: Replica) -> Iterator[None]:
    """Run clients' code, and put back what it changed of the process and of the model's parts.

    What cannot be put back is named with the clients.
    """
    process = os.getpid()
    replica.remember()
    try:
        with no_timer_left():
            yield
    finally:
        if os.getpid() != process:  # a client forked, and this is the copy, which would do everything once more
            os._exit(1)
        spoiled = [*pin_again(), *replica.put_back()]
        if not descriptors_are_open():
            spoiled.append("open files")
        if spoiled:
            who = f"client {', '.join(map(str, clients))}"
            raise SpoiledError(
                f"{who} changed process settings that cannot be restored: {', '.join(spoiled)}. "
                'With the engine "processes" only that client is left out.'
            )


def passes(error: BaseException) -> bool:
    """Say whether an exception from a client's code is not a fault of that client, and must be passed on."""
    return isinstance(error, SpoiledError) or (comes_from_outside(error) and not isinstance(error, TooSlowError))


def too_slow(seconds: float | None) -> str:
    """Say that a client took too long."""
    return f"took longer than the {seconds:g} s of run.client_seconds"
