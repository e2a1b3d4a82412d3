"""Settings of torch that decide the last bits of a result: pinned while training runs, and restored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ENVIRONMENT = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that also decide bits, and are read before we run: recorded with every run."""

CUDNN = {"allow_tf32": False, "deterministic": True, "benchmark": False}
"""What decides the bits of convolutions on CUDA."""


@contextmanager
def pinned() -> Iterator[None]:
    """Compute with one thread, in float32, at full precision; restore what was set before."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    precision, mkldnn = torch.get_float32_matmul_precision(), bool(torch.backends.mkldnn.enabled)
    cudnn = {name: getattr(torch.backends.cudnn, name) for name in CUDNN}
    torch.set_num_threads(1)
    for name, value in CUDNN.items():
        setattr(torch.backends.cudnn, name, value)
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for name, before in cudnn.items():
            setattr(torch.backends.cudnn, name, before)
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)
        torch.backends.mkldnn.enabled = mkldnn  # type: ignore[assignment]


def variables() -> dict[str, str]:
    """Return the environment variables that decide bits, where they are set."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
