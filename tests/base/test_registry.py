"""What is registered: read from source files as it is in the functions, and without importing PyTorch."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedquilt
from fedquilt.base.registry import KINDS as REGISTRIES

SPEC = """
[run]
rounds = 1
[data]
name = "digits"
[partition]
name = "iid"
clients = 4
[model]
name = "softmax_regression"
[method]
name = "fed_avg"
"""

LIGHT = [
    ["--help"],
    ["--version"],
    *(["list", kind] for kind in REGISTRIES),
    ["lst"],
    ["list", "methds"],
    ["run", "missing.toml"],
    *(
        [verb, "spec.toml", "--set", change]
        for verb in ("run", "sweep")
        for change in ("method.name=fed_agv", "model.nam=x", "method.lrr=1", "run.round=1", "run.loss=cross_entropi")
    ),
    ["run", "spec.toml", "--set", 'run.metrics=["acuracy"]'],
    ["partition", "spec.toml", "--set", "partition.name=idd"],
]


@pytest.mark.parametrize("kind", REGISTRIES)
def test_source_files_say_what_the_functions_say(kind: str) -> None:
    known = REGISTRIES[kind]
    for name in known:
        function = known[name]
        every = inspect.signature(function).parameters
        assert known.summary(name) == (inspect.getdoc(function) or "").split("\n", 1)[0] != ""
        assert known.parameters(name) == tuple(every)


def test_every_registered_function_is_found_in_its_folder() -> None:
    found = {kind: set(known) for kind, known in REGISTRIES.items()}
    for module in pkgutil.walk_packages(fedquilt.__path__, "fedquilt."):
        if module.name != "fedquilt.__main__":
            importlib.import_module(module.name)
    assert {kind: set(known) for kind, known in REGISTRIES.items()} == found
    assert all(found.values())


ASK = """
import json, sys
from fedquilt.__main__ import main
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as ended:
        print("ended:", ended.code, *sorted({"torch", "numpy"} & sys.modules.keys()))
"""


def test_lists_help_and_typos_need_no_pytorch(tmp_path: Path) -> None:
    """One after the other in a process of their own."""
    (tmp_path / "spec.toml").write_text(SPEC)
    asked = [sys.executable, "-c", ASK, json.dumps(LIGHT)]
    ended = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, check=True)
    found = [line for line in ended.stdout.splitlines() if line.startswith("ended:")]
    right = [words[0] in ("--help", "--version") or (words[0] == "list" and words[1] in REGISTRIES) for words in LIGHT]
    expected = [f"ended: {0 if each else 2}" for each in right]
    assert dict(zip(map(" ".join, LIGHT), found, strict=True)) == dict(zip(map(" ".join, LIGHT), expected, strict=True))
