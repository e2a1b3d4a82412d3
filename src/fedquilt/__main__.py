"""`python -m fedquilt`, and what the command `fedquilt` starts.

Apart from the command line itself, so that Ctrl-C while that is still being imported ends without a traceback too.
"""

import atexit
import gc
import io
import os
import sys
import threading
from contextlib import suppress

from fedquilt.base import interrupts


def main() -> None:
    """Import the command line and run it."""
    # SIGTERM, of a scheduler that ends a job, and SIGHUP, of a connection that is lost, are as Ctrl-C.
    interrupts.take(*interrupts.SIGNALS)
    try:
        with interrupts.allowed():
            from fedquilt.cli import app as cli

            cli.main()
    except KeyboardInterrupt:
        interrupts.caught()
        print("Interrupted before anything began: nothing was started, and nothing saved.", file=sys.stderr)
        sys.exit(130)
    finally:
        interrupts.ignore(*interrupts.SIGNALS)


def command() -> None:
    """Do what `main` does, and end the process at once: what the installed command `fedquilt` starts.

    By itself, Python takes all modules apart first, which needs most of a second once PyTorch is imported.
    """
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, int | None) and not _watched():
            _leave(ended.code or 0)
        raise


def _watched() -> bool:
    """Say whether something is to be waited for, or watches this process and has yet to write what it saw."""
    threads = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = [] if monitoring is None else [monitoring.get_tool(number) for number in range(6)]
    return bool(threads) or any(each is not None for each in (sys.gettrace(), sys.getprofile(), *tools))


def _leave(code: int) -> None:
    """Do what Python does at the end of a process, but for taking modules apart."""
    atexit._run_exitfuncs()
    ours = [each for each in (sys.stdout, sys.stderr) if each is not None]
    try:
        for each in ours:
            each.flush()
    except (OSError, ValueError):
        return  # nobody reads it any more: Python says so in its own way
    for each in gc.get_objects():
        if issubclass(type(each), io.IOBase):  # a file that somebody has left open
            with suppress(OSError, ValueError):
                each.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
