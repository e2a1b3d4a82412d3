"""Tile registers: oneDNN is kept off them where they are announced, but not described."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fedquilt.base.cache_folder import processor_flags
from fedquilt.compute.kernels import tiles as module


@pytest.mark.parametrize(
    ("flags", "described", "before", "after"),
    [
        ({"avx2", "amx_tile"}, 0, None, "AVX512_CORE_FP16"),
        ({"avx2", "amx_tile"}, 0, "AVX2", "AVX2"),
        ({"avx2", "amx_tile"}, 8, None, None),
        ({"avx2", "amx_tile"}, None, None, None),
        ({"avx2"}, 0, None, None),
    ],
)
def test_tiles_are_avoided_where_they_are_announced_but_not_described(monkeypatch, flags, described, before, after):
    monkeypatch.setattr(module, "processor_flags", lambda: frozenset(flags))
    monkeypatch.setattr(module, "described_tiles", lambda: described)
    for name in module.VARIABLES:
        monkeypatch.setenv(name, before or "")  # so that it is put back as it was, whatever the function sets
        if before is None:
            monkeypatch.delenv(name)
    module.avoid_missing_tiles()
    assert os.environ.get(module.VARIABLES[0]) == after


def test_the_former_name_of_the_variable_counts_too(monkeypatch):
    monkeypatch.setattr(module, "processor_flags", lambda: frozenset({"amx_tile"}))
    monkeypatch.setattr(module, "described_tiles", lambda: 0)
    new, former = module.VARIABLES
    monkeypatch.setenv(new, "")
    monkeypatch.setenv(former, "AVX2")
    module.avoid_missing_tiles()
    assert os.environ[new] == ""


def test_processors_without_tiles_describe_none():
    assert module.described_tiles() in ({None, 0, 8} if "amx_tile" in processor_flags() else {None, 0})


def test_nothing_is_compiled_to_ask(monkeypatch):
    monkeypatch.setattr(module, "installed_library", lambda name: None)
    assert module.described_tiles() is None


def test_products_of_bfloat16_numbers_end_no_process():
    code = (
        "import torch\nimport fedquilt.compute.device\n"
        "x = torch.ones(10, 64, dtype=torch.bfloat16)\nprint(torch.nn.functional.linear(x, x)[0, 0].item())"
    )
    environment = {name: value for name, value in os.environ.items() if name not in module.VARIABLES}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "64.0"), done.stderr
