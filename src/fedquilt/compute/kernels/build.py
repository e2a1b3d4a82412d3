"""Compiles the C++ files of this folder on first use, for this processor, and keeps the results between runs.

A kernel is a file, or several that are compiled side by side: `stack` is stack.cpp, stack_forward.cpp and so on.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from fedquilt.base.cache_folder import private_folder
from fedquilt.base.errors import FedquiltError

FLAGS = ("-O2", "-ftree-vectorize", "-std=c++17", "-ffp-contract=off", "-fPIC")
"""Not what makes results depend on the compiler: where a product and a sum are rounded once, the files say so."""


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """Return a compiled kernel of this folder, compiling it unless that was done before."""
    path, command = _made_as(name)
    if path.exists():
        with suppress(OSError):  # a file that was damaged is made again
            return ctypes.CDLL(str(path))
    compile_files(command, _sources(name), path)
    return ctypes.CDLL(str(path))


def compiled_before(name: str) -> bool:
    """Say whether a kernel of this folder was compiled before, here and with the same compiler.

    >>> compiled_before("nothing of that name")
    False
    """
    try:
        return _made_as(name)[0].exists()
    except (FedquiltError, OSError):
        return False


def _sources(name: str) -> list[Path]:
    """Return the files of a kernel."""
    folder = Path(__file__).parent
    return [folder / f"{name}.cpp", *sorted(folder.glob(f"{name}_*.cpp"))]


@functools.cache
def _made_as(name: str) -> tuple[Path, list[str]]:
    """Return where a compiled kernel is kept, and the command that makes it, but for its files and that place."""
    compiler = cpp_compiler()
    native = "-mcpu=native" if platform.machine() in {"arm64", "aarch64"} else "-march=native"
    command = [*compiler, *FLAGS, native]
    headers = sorted(Path(__file__).parent.glob("*.h"))
    read = b"".join(file.read_bytes() for file in [*_sources(name), *headers])
    key = hashlib.sha256(read + "\n".join([*command, _version(compiler)]).encode()).hexdigest()[:24]
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


def cpp_compiler() -> list[str]:
    """Return the command of a C++ compiler, or say that there is none."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        command = shlex.split(name or "")
        if command and shutil.which(command[0]):
            return command
    raise FedquiltError("no C++ compiler was found (c++, g++ or clang++; the variable CXX names another)")


def _version(compiler: list[str]) -> str:
    return _run([*compiler, "--version"])


def compile_files(command: Sequence[str], sources: Sequence[Path], path: Path) -> None:
    """Compile files side by side, and move the library that they make to its place, so that nobody sees half of it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, ThreadPoolExecutor() as threads:
        objects = [str(Path(folder) / f"{source.stem}.o") for source in sources]
        calls = [[*command, "-c", str(source), "-o", to] for source, to in zip(sources, objects, strict=True)]
        list(threads.map(_run, calls))
        made = Path(folder) / path.name
        _run([*command, "-shared", *objects, "-o", str(made)])
        made.replace(path)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise FedquiltError(f"the C++ compiler {command[0]} failed: {said[0]}")
    return done.stdout


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
