"""Kernels that are compiled when fedquilt is installed: found without a compiler, and only where they fit."""

from __future__ import annotations

import importlib
import os
import shutil
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedquilt.base.cache_folder import processor_flags
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.kernels import build, compiler

pytestmark = pytest.mark.skipif(
    sysconfig.get_platform() != "linux-x86_64" or not any(map(shutil.which, ("c++", "g++", "clang++"))),
    reason="needs a C++ compiler for x86-64 on Linux",
)

ROOT = Path(__file__).parents[3]
MODERN, WIDE = frozenset(compiler.AVX2), frozenset(compiler.AVX512)


FEW = ("exact", "stack")
"""Kernels that are compiled again where any would do: all of them take half a minute."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kernels, compiled once as an installation does it."""
    folder = tmp_path_factory.mktemp("made") / "installed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "INSTALLED", folder)
        compiler.install()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of its own, whose user has compiled nothing, and has no compiler from now on."""
    shutil.copytree(made, tmp_path / "installed")
    monkeypatch.setattr(compiler, "INSTALLED", tmp_path / "installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH_BEFORE", os.environ["PATH"])
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    build._made_as.cache_clear()
    return tmp_path / "installed"


def found_by(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str]) -> bool:
    monkeypatch.setattr(build, "processor_flags", lambda: flags)
    return bool(build._installed("stack"))


@pytest.mark.skipif(not processor_flags() >= MODERN, reason="needs a processor with AVX2 and fused multiply-add")
def test_an_installed_kernel_needs_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "processor_flags", lambda: MODERN)
    build.installed_library.cache_clear()
    loaded = build.library.__wrapped__("stack")
    assert Path(loaded._name).parent == folder
    compiler.installed("lstm", compiler.AVX2).unlink()
    build.installed_library.cache_clear()
    with pytest.raises(FedquiltError, match=r"no C\+\+ compiler was found"):
        build.library.__wrapped__("lstm")


def test_an_installed_kernel_is_for_the_processors_that_it_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(monkeypatch, MODERN)
    assert not found_by(monkeypatch, MODERN - {"fma"})


def test_the_widest_registers_are_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = (compiler.installed("stack", target) for target in compiler.TARGETS)
    for flags, paths in ((WIDE, [wide, narrow]), (MODERN, [narrow]), (WIDE - {"avx512vl"}, [narrow])):
        monkeypatch.setattr(build, "processor_flags", lambda flags=flags: flags)
        assert build._installed("stack") == paths
        assert not build.to_be_compiled("stack")


def test_what_is_to_be_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "processor_flags", lambda: MODERN)
    assert not build.to_be_compiled("stack")
    compiler.installed("lstm", compiler.AVX2).unlink()
    build.installed_library.cache_clear()
    assert not build.to_be_compiled("lstm"), "there is no compiler"
    monkeypatch.setenv("PATH", os.environ["PATH_BEFORE"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    build._made_as.cache_clear()
    assert build.to_be_compiled("lstm")
    build.library.__wrapped__("lstm")
    assert not build.to_be_compiled("lstm")
    build._made_as.cache_clear()


def test_a_kernel_of_other_files_is_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, content = set(folder.iterdir()), compiler.content_of
    monkeypatch.setattr(compiler, "content_of", lambda name: content(name) + b"// changed")
    assert not found_by(monkeypatch, MODERN)
    assert len(made) == len(compiler.KEPT_READY) * len(compiler.TARGETS)
    monkeypatch.setattr(compiler, "KEPT_READY", FEW)
    monkeypatch.setenv("PATH", os.defpath)
    others = set(compiler.install())
    assert set(folder.iterdir()) == others
    assert len(others) == len(FEW) * len(compiler.TARGETS)
    assert others.isdisjoint(made)


def test_installing_again_mends_what_was_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiler.installed("stack", compiler.AVX2)
    whole = made.stat().st_size
    made.write_bytes(b"damaged")
    monkeypatch.setattr(compiler, "KEPT_READY", FEW)
    monkeypatch.setenv("PATH", os.defpath)
    assert set(compiler.install()) == set(folder.iterdir())
    assert made.stat().st_size == whole


@pytest.mark.skipif(not processor_flags() >= MODERN, reason="needs a processor with AVX2 and fused multiply-add")
def test_a_damaged_kernel_is_not_used(folder: Path) -> None:
    """The next best one serves, if there is one."""
    best, *others = [
        compiler.installed("exact", target) for target in compiler.TARGETS if processor_flags() >= set(target)
    ]
    best.write_bytes(b"damaged")
    loaded = build.installed_library.__wrapped__("exact")
    assert ([Path(loaded._name)] if loaded else []) == others[:1]
    compiler.installed("lstm", compiler.AVX512).unlink()
    compiler.installed("lstm", compiler.AVX2).write_bytes(b"damaged")
    assert build.installed_library.__wrapped__("lstm") is None


def build_data(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[str]]:
    """What the hook of the package's build makes of a wheel, and what it warns of."""
    pytest.importorskip("hatchling")
    monkeypatch.syspath_prepend(ROOT)
    hook = importlib.import_module("hatch_build")
    warnings: list[str] = []
    app = SimpleNamespace(display_warning=warnings.append)
    data: dict[str, Any] = {"artifacts": [], "pure_python": True}
    hook.Kernels(str(ROOT), {}, None, None, "", "wheel", app).initialize("standard", data)
    return data, warnings


def test_a_wheel_with_a_kernel_is_for_its_system(monkeypatch: pytest.MonkeyPatch) -> None:
    data, warnings = build_data(monkeypatch)
    paths = [compiler.installed(name, target) for name in compiler.KEPT_READY for target in compiler.TARGETS]
    made = [f"/{path.relative_to(ROOT)}" for path in paths]
    assert data == {"artifacts": made, "pure_python": False, "tag": "py3-none-linux_x86_64"}
    assert warnings == []


def test_without_a_compiler_a_wheel_is_for_any_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    data, warnings = build_data(monkeypatch)
    assert data == {"artifacts": [], "pure_python": True}
    (said,) = warnings
    assert "compiled on first use instead: no C++ compiler was found" in said
