"""What a report takes and writes, and what it says of folders that it cannot use."""

from __future__ import annotations



