"""`python -m fedquilt`, and what the command `fedquilt` starts.

Apart from the command line itself, so that Ctrl-C while that is still being imported ends without a traceback too.
"""

import sys


def main() -> None:
    """Import the command line and run it."""
    try:
        from fedquilt import cli

        cli.main()
    except KeyboardInterrupt:
        print("Interrupted before anything began: nothing was started, and nothing saved.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
