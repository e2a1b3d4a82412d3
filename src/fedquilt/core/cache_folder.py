"""Where compiled code is kept between runs: a private folder of the user's cache.

It is apart for every version of torch and kind of processor.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import torch


def cache_folder() -> Path:
    """Return the folder for compiled code: below XDG_CACHE_HOME or ~/.cache, by torch's version and the processor."""
    kind = f"{torch.__version__} {platform.machine()} {torch.backends.cpu.get_cpu_capability()} {_flags()}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "fedquilt" / "compiled" / hashlib.sha256(kind.encode()).hexdigest()[:16]


def _flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), "")
