"""Exit codes, which scripts rely on; 0 is done."""

FAILED = 1
"""The run failed."""

WRONG = 2
"""Wrong usage, spec or folder."""

INTERRUPTED = 130
"""Interrupted, and can be resumed."""
