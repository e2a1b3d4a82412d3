"""Runs the C++ compiler on the files of this folder; without PyTorch, since the package's own build runs it too.

A kernel is a file, or several that are compiled side by side: `stack` is stack.cpp, stack_forward.cpp and so on.

Kernels are compiled when fedquilt is installed, where there is a compiler: for all x86-64 processors with AVX2 and fused
multiply-add, and once more for those with AVX-512. Elsewhere they are compiled on first use (`build`). On processors with
fused multiply-add, all of them give the same bits.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from fedquilt.base.cores import cores
from fedquilt.base.errors import FedquiltError

HERE = Path(__file__).parent
INSTALLED = HERE / "installed"
"""Where kernels are that were compiled when fedquilt was installed."""

FLAGS = ("-O2", "-ftree-vectorize", "-std=c++17", "-ffp-contract=off", "-fPIC")
"""Not what makes results depend on the compiler: where a product and a sum are rounded once, the files say so."""

AVX2 = ("avx2", "fma", "bmi2")
"""What the x86-64 processors of the last ten years have."""

AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
"""What those with wider registers have."""

TARGETS = (AVX512, AVX2)
"""What kernels are compiled for at installation, the best first; Linux and compilers call these by the same names."""

KEPT_READY = (
    "convolution", "cross_entropy", "exact", "group_norm", "linear", "lstm", "max_pool", "permutations", "rectified",
    "response_norm", "stack", "tiles",
)  # fmt: skip
"""Kernels whose bits do not depend on what they were compiled for."""


def sources_of(name: str) -> list[Path]:
    """Return the files of a kernel."""
    return [HERE / f"{name}.cpp", *sorted(HERE.glob(f"{name}_*.cpp"))]


def content_of(name: str) -> bytes:
    """Return all that a kernel is compiled from."""
    headers = [file for file in (HERE / "lanes.h", HERE / f"{name}.h") if file.exists()]
    return b"".join(file.read_bytes() for file in [*sources_of(name), *headers])


def flags_for(target: Sequence[str]) -> list[str]:
    """Return a compiler's flags for all processors that have what a target needs."""
    return [*FLAGS, *(f"-m{each}" for each in target)]


def installed(name: str, target: Sequence[str]) -> Path:
    """Return where a kernel is if it was compiled from these files, for a target, when fedquilt was installed."""
    key = hashlib.sha256(content_of(name) + "\n".join(flags_for(target)).encode()).hexdigest()[:24]
    return INSTALLED / f"{name}-{key}.so"


def install() -> list[Path]:
    """Compile what is kept ready, in place of what was there, and return the files: none for other systems."""
    if sysconfig.get_platform() != "linux-x86_64":
        return []
    INSTALLED.mkdir(exist_ok=True)
    libraries = [
        Library([*cpp_compiler(), *flags_for(target)], sources_of(name), installed(name, target))
        for name in KEPT_READY
        for target in TARGETS
    ]
    compile_libraries(libraries)
    made = [library.path for library in libraries]
    for old in set(INSTALLED.glob("*.so")) - set(made):
        old.unlink()
    return made


def cpp_compiler() -> list[str]:
    """Return the command of a C++ compiler, or say that there is none."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        command = _words(name or "")
        if command and shutil.which(command[0]):
            return command
    raise FedquiltError("no C++ compiler was found (c++, g++ or clang++; the variable CXX names another)")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise FedquiltError(f"the variable CXX cannot be read: {error}: {command}") from None


class Library(NamedTuple):
    """A library to be made: by which command, of which files, and where it goes."""

    command: Sequence[str]
    sources: Sequence[Path]
    path: Path


def compile_libraries(libraries: Sequence[Library]) -> None:
    """Compile files side by side, one a core, and move what they make to its place, so that nobody sees half of it."""
    with tempfile.TemporaryDirectory(dir=libraries[0].path.parent) as made, ThreadPoolExecutor(cores()) as threads:
        calls, links = [], []
        for number, (command, sources, path) in enumerate(libraries):
            objects = [f"{made}/{number}-{source.stem}.o" for source in sources]
            calls += [[*command, "-c", str(source), "-o", to] for source, to in zip(sources, objects, strict=True)]
            links.append([*command, "-shared", *objects, "-o", f"{made}/{path.name}"])
        list(threads.map(run, calls))
        list(threads.map(run, links))
        for library in libraries:
            (Path(made) / library.path.name).replace(library.path)


def run(command: list[str]) -> str:
    """Run a compiler, and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise FedquiltError(f"the C++ compiler {command[0]} failed: {said[0]}")
    return done.stdout
