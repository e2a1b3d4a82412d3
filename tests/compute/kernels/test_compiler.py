"""Kernels that are compiled when fedquilt is installed: found without a compiler, and only where they fit."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from fedquilt.base.cache_folder import processor_flags
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.kernels import build, compiler, stack

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64" or build.trouble(stack.KERNEL) is not None,
    reason="needs a C++ compiler for x86-64 on Linux",
)

MODERN = frozenset({"avx2", "fma", "bmi2"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of its own, whose user has compiled nothing, and has no compiler from now on."""
    monkeypatch.setattr(compiler, "INSTALLED", tmp_path / "installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler.install()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    build._made_as.cache_clear()
    return tmp_path / "installed"


def found_by(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str]) -> bool:
    monkeypatch.setattr(build, "processor_flags", lambda: flags)
    return build.compiled_before("stack")


@pytest.mark.skipif(not processor_flags() >= MODERN, reason="needs a processor with AVX2 and fused multiply-add")
def test_an_installed_kernel_needs_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "processor_flags", lambda: MODERN)
    loaded = build.library.__wrapped__("stack")
    assert Path(loaded._name).parent == folder
    with pytest.raises(FedquiltError, match=r"no C\+\+ compiler was found"):
        build.library.__wrapped__("lstm")


def test_an_installed_kernel_is_for_the_processors_that_it_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(monkeypatch, MODERN)
    assert not found_by(monkeypatch, MODERN - {"fma"})
    assert not found_by(monkeypatch, MODERN | {"avx512f"}), "one that uses the wider registers is faster"


def test_a_kernel_of_other_files_is_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (made,) = folder.iterdir()
    monkeypatch.setattr(compiler, "GENERAL", (*compiler.GENERAL, "-DOTHER"))
    assert not found_by(monkeypatch, MODERN)
    monkeypatch.undo()
    monkeypatch.setattr(compiler, "INSTALLED", folder)
    monkeypatch.setattr(compiler, "GENERAL", (*compiler.GENERAL, "-DOTHER"))
    (other,) = compiler.install()
    assert list(folder.iterdir()) == [other] != [made]
