"""What a run was made with: versions, commit, hardware, threads."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import fedquilt
from fedquilt.compute.pinned import variables

PACKAGES = ("torch", "numpy", "safetensors", "scikit-learn")


def environment() -> dict[str, Any]:
    """Describe this machine and what is installed, without naming it."""
    return {
        "fedquilt": fedquilt.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory(),
        "threads_per_worker": 1,
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "variables": variables(),
    }


def _commit() -> str | None:
    """Return the commit of the source tree that is running, if it is one."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
