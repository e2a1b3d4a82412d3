"""Keeps PyTorch off tile registers (AMX) that a virtual machine announces, but does not describe."""

from __future__ import annotations

import os

from fedquilt.base.cache_folder import processor_flags
from fedquilt.compute.kernels.build import installed_library

VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Tells oneDNN which instructions it may use: the variable's present name, and its former one."""


def avoid_missing_tiles() -> None:
    """Have oneDNN, which PyTorch computes bfloat16 with, use what comes before tiles where there are none.

    Some virtual machines tell of a processor with tiles and leave out how many and how large they are. oneDNN takes that
    for none of no size, and the process is ended by an illegal instruction in its first product of bfloat16 numbers.
    oneDNN reads the variable once, when it is first used: a script that has computed with it before fedquilt was imported
    must set the variable itself. What the user has set stays as it is.
    """
    if "amx_tile" in processor_flags() and described_tiles() == 0 and not any(map(os.environ.get, VARIABLES)):
        os.environ[VARIABLES[0]] = "AVX512_CORE_FP16"


def described_tiles() -> int | None:
    """Return how many tiles the processor says that it has, or None where no kernel was installed that can ask it.

    >>> described_tiles() in (None, 0, 8)
    True
    """
    library = installed_library("tiles")
    return None if library is None else int(library.tiles())
