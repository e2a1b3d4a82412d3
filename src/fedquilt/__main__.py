"""`python -m fedquilt`, and what the command `fedquilt` starts.

Apart from the command line itself, so that Ctrl-C while that is still being imported ends without a traceback too.
"""

import sys

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


if __name__ == "__main__":
    main()
