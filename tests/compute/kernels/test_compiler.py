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
MODERN = frozenset(compiler.NEEDS)


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
    return build._installed("stack") is not None


@pytest.mark.skipif(not processor_flags() >= MODERN, reason="needs a processor with AVX2 and fused multiply-add")
def test_an_installed_kernel_needs_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "processor_flags", lambda: MODERN)
    build.installed_library.cache_clear()
    loaded = build.library.__wrapped__("stack")
    assert Path(loaded._name).parent == folder
    compiler.installed("lstm").unlink()
    build.installed_library.cache_clear()
    with pytest.raises(FedquiltError, match=r"no C\+\+ compiler was found"):
        build.library.__wrapped__("lstm")


def test_an_installed_kernel_is_for_the_processors_that_it_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(monkeypatch, MODERN)
    assert not found_by(monkeypatch, MODERN - {"fma"})
    assert found_by(monkeypatch, MODERN | {"avx512f"}), "there is no compiler for one with wider registers"
    build.installed_library.cache_clear()
    assert Path(build.library.__wrapped__("stack")._name).parent == folder


@pytest.mark.skipif(not processor_flags() >= MODERN, reason="needs a processor with AVX2 and fused multiply-add")
def test_an_installed_kernel_serves_where_nothing_can_be_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(build, "processor_flags", lambda: MODERN | {"avx512f"})
    monkeypatch.setattr(build, "_compiled", full)
    build.installed_library.cache_clear()
    assert Path(build.library.__wrapped__("stack")._name).parent == folder


def test_what_is_to_be_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "processor_flags", lambda: MODERN)
    assert not build.to_be_compiled("stack")
    compiler.installed("lstm").unlink()
    build.installed_library.cache_clear()
    assert not build.to_be_compiled("lstm"), "there is no compiler"
    monkeypatch.setenv("PATH", os.environ["PATH_BEFORE"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    build._made_as.cache_clear()
    assert build.to_be_compiled("lstm")
    build.library.__wrapped__("lstm")
    assert not build.to_be_compiled("lstm")
    build._made_as.cache_clear()


def test_where_registers_are_wider_a_compiler_makes_one_that_uses_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(build, "processor_flags", lambda: MODERN | {"avx512f"})
    assert build.to_be_compiled("stack")
    loaded = build.library.__wrapped__("stack")
    assert Path(loaded._name).is_relative_to(tmp_path / "cache")
    build._made_as.cache_clear()


def test_a_kernel_of_other_files_is_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, content = set(folder.iterdir()), compiler.content_of
    monkeypatch.setattr(compiler, "content_of", lambda name: content(name) + b"// changed")
    assert not found_by(monkeypatch, MODERN)
    monkeypatch.setenv("PATH", os.defpath)
    others = set(compiler.install())
    assert set(folder.iterdir()) == others
    assert len(others) == len(made) == len(compiler.KEPT_READY)
    assert others.isdisjoint(made)


def test_installing_again_mends_what_was_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiler.installed("stack")
    whole = made.stat().st_size
    made.write_bytes(b"damaged")
    monkeypatch.setenv("PATH", os.defpath)
    assert set(compiler.install()) == set(folder.iterdir())
    assert made.stat().st_size == whole


def test_sums_use_the_installed_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are taken by the installed kernel, also where registers are wider, or else by PyTorch."""
    for flags in (MODERN, MODERN | {"avx512f"}):
        monkeypatch.setattr(build, "processor_flags", lambda flags=flags: flags)
        loaded = build.installed_library.__wrapped__("exact")
        assert loaded is not None
        assert Path(loaded._name).parent == folder


def test_a_damaged_kernel_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "processor_flags", lambda: MODERN)
    compiler.installed("exact").write_bytes(b"damaged")
    assert build.installed_library.__wrapped__("exact") is None


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
    made = [f"/{compiler.installed(name).relative_to(ROOT)}" for name in compiler.KEPT_READY]
    assert data == {"artifacts": made, "pure_python": False, "tag": "py3-none-linux_x86_64"}
    assert warnings == []


def test_without_a_compiler_a_wheel_is_for_any_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    data, warnings = build_data(monkeypatch)
    assert data == {"artifacts": [], "pure_python": True}
    (said,) = warnings
    assert "compiled on first use instead: no C++ compiler was found" in said
