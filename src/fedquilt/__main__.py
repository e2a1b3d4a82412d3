"""`python -m fedquilt` is the command line."""

from fedquilt.cli import main

main()
