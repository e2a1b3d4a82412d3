"""Where compiled code is kept between runs: a private folder of the user's cache.

It is apart for every version of torch and kind of processor.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path

import torch

from fedquilt.base.errors import FedquiltError


def cache_folder() -> Path:
    """Return the folder for compiled code: below XDG_CACHE_HOME or ~/.cache, by torch's version and the processor."""
    kind = f"{torch.__version__} {platform.machine()} {torch.backends.cpu.get_cpu_capability()} {_flags()}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "fedquilt" / "compiled" / hashlib.sha256(kind.encode()).hexdigest()[:16]


def private_folder() -> Path:
    """Return the folder for compiled code, made if need be; refuse one that others may write to, for it is executed."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    about = folder.stat()
    if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
        raise FedquiltError(
            f"{folder}: other users can write to this folder, which holds compiled code; correct that with "
            f"`chmod 700 {folder}`, or set XDG_CACHE_HOME to another folder"
        )
    return folder


@functools.cache
def processor_flags() -> frozenset[str]:
    """Return what the processor can do, in Linux' words; nothing where it is not known.

    >>> "no such thing" in processor_flags()
    False
    """
    return frozenset(_flags().split())


def _flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), "")
