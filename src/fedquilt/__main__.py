"""`python -m fedquilt`, and what the command `fedquilt` starts.

Apart from the command line itself, so that Ctrl-C while that is still being imported ends without a traceback too.
"""

import atexit
import os
import sys
import threading

from fedquilt.base import interrupts


def main() -> None:
    """Import the command line, run it, and end the process."""
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
    except SystemExit as ended:
        interrupts.ignore(*interrupts.SIGNALS)
        _leave(ended.code)
        raise
    finally:
        interrupts.ignore(*interrupts.SIGNALS)


def _leave(code: object) -> None:
    """End the process at once, if nothing is left to wait for.

    By itself, Python takes all modules apart first, which needs most of a second once PyTorch is imported.
    """
    waiting = [
        thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()
    ]
    if waiting or not isinstance(code, int | None):
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # nobody reads any more: Python says so in its own way
    os._exit(code or 0)


if __name__ == "__main__":
    main()
