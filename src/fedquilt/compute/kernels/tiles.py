"""Keeps PyTorch off tile registers (AMX) that a virtual machine announces, but does not describe."""

from __future__ import annotations

import os

from fedquilt.base.cache_folder import processor_flags
from fedquilt.compute.kernels.build import library, trouble

VARIABLE = "ONEDNN_MAX_CPU_ISA"


def avoid_missing_tiles() -> None:
    """Have oneDNN, which PyTorch computes bfloat16 with, use what comes before tiles where there are none.

    Some virtual machines tell of a processor with tiles and leave out how many and how large they are. oneDNN takes that
    for none of no size, and the process is ended by an illegal instruction in its first product of bfloat16 numbers.
    oneDNN reads the variable once, when it is first used, so it is set before fedquilt computes anything. A variable that
    the user has set stays as it is.
    """
    if "amx_tile" in processor_flags() and described_tiles() == 0:
        os.environ.setdefault(VARIABLE, "AVX512_CORE_FP16")


def described_tiles() -> int:
    """Return how many tiles the processor says that it has: 0 where it does not say, or cannot be asked.

    >>> described_tiles() >= 0
    True
    """
    return 0 if trouble("tiles") else int(library("tiles").tiles())
