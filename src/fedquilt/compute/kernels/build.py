"""Kernels as libraries: those that were installed, or else compiled on first use, for this processor, and kept."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from fedquilt.base.cache_folder import private_folder, processor_flags
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.kernels.compiler import (
    FLAGS,
    TARGETS,
    Library,
    compile_libraries,
    content_of,
    cpp_compiler,
    installed,
    run,
    sources_of,
)

LANES = 16
"""As in lanes.h: numbers that kernels compute side by side, on any processor. Some take channels in such groups only."""


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """Return a kernel of this folder: the installed one, or else one that is compiled unless that was done before."""
    return installed_library(name) or _compiled(name)


@functools.cache
def installed_library(name: str) -> ctypes.CDLL | None:
    """Return the best kernel that was compiled when fedquilt was installed, or None if none is for this processor."""
    for path in _installed(name):
        with suppress(OSError):  # a file that was damaged, or made for another system
            return ctypes.CDLL(str(path))
    return None


def _compiled(name: str) -> ctypes.CDLL:
    """Return a kernel for this processor, compiling it unless that was done before."""
    path, command = _made_as(name)
    if path.exists():
        with suppress(OSError):  # a file that was damaged is made again
            return ctypes.CDLL(str(path))
    compile_libraries([Library(command, sources_of(name), path)])
    return ctypes.CDLL(str(path))


def to_be_compiled(name: str) -> bool:
    """Say whether a kernel of this folder is compiled on its next use: it can be, and nothing that serves is there yet."""
    if _installed(name):
        return False
    try:
        return not _made_as(name)[0].exists()
    except (FedquiltError, OSError):  # no compiler
        return False


def _installed(name: str) -> list[Path]:
    """Return the files of a kernel that came with fedquilt and that this processor can run, the best first."""
    with suppress(OSError):  # its sources cannot be read
        paths = [installed(name, target) for target in TARGETS if processor_flags().issuperset(target)]
        return [path for path in paths if path.exists()]
    return []


@functools.cache
def _made_as(name: str) -> tuple[Path, list[str]]:
    """Return where a compiled kernel is kept, and the command that makes it, but for its files and that place."""
    compiler = cpp_compiler()
    native = "-mcpu=native" if platform.machine() in {"arm64", "aarch64"} else "-march=native"
    command = [*compiler, *FLAGS, native]
    version = run([*compiler, "--version"])
    key = hashlib.sha256(content_of(name) + "\n".join([*command, version]).encode()).hexdigest()[:24]
    return private_folder() / f"{name}-{key}.so", command


@functools.cache
def trouble(*names: str) -> str | None:
    """Say why one of some files of this folder cannot be compiled here, if so."""
    try:
        for name in names:
            library(name)
    except (FedquiltError, OSError) as error:
        return str(error)
    return None


def pointers(*tensors: Tensor | None) -> list[ctypes.c_void_p]:
    """Return where tensors lie, as a library's functions take it; None is a null pointer."""
    return [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]


def sizes(*numbers: int) -> list[ctypes.c_int64]:
    """Return whole numbers as a library's functions take them."""
    return [ctypes.c_int64(number) for number in numbers]


def usable(*tensors: Tensor | None) -> bool:
    """Say whether a kernel takes some tensors: plain ones on the CPU. Autocast and `torch.func` do not know of kernels."""
    if torch._C._are_functorch_transforms_active() or torch.is_autocast_enabled("cpu"):
        return False
    given = [tensor for tensor in tensors if tensor is not None]
    return all(type(x) in {Tensor, nn.Parameter} and x.dtype == torch.float32 and x.device.type == "cpu" for x in given)
