"""The names that others may rely on, and how they are documented.

What is registered is public: `fedquilt list` lists it, and `tests/base/test_registry.py` tests how it is found. The names
below are the others.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fedquilt
from fedquilt.base import registry
from fedquilt.base.registry import KINDS

ROOT = Path(__file__).parents[1]

OTHERS = [
    "AboutRun",
    "Data",
    "Experiment",
    "FedquiltError",
    "History",
    "Inspection",
    "Partition",
    "Result",
    "Run",
    "Simulation",
    "Split",
    "Watcher",
    "arrays",
    "evaluate",
    "experiment",
    "export",
    "inspect_partition",
    "load_spec",
    "load_weights",
    "no_import",
    "report",
    "resume",
    "rounds_to",
    "run",
    "summary",
    "SweepResult",
    "sweep",
    "train",
]

IN_ROOT = ("methods", "wrappers", "simulations", "datasets", "partitions", "engines")
NAMESPACES = ["algorithm", "datasets", "engines", "methods", "models", "partition", "simulate"]
PUBLIC = [(name, getattr(fedquilt, name)) for name in fedquilt.__all__]
REGISTERED = [(kind, name) for kind, known in KINDS.items() for name in known]


def test_public_names() -> None:
    """A change here is a change of the interface: CHANGELOG.md has to say so."""
    registered = [name for kind in IN_ROOT for name in KINDS[kind]]
    assert sorted(fedquilt.__all__) == sorted([*OTHERS, *registered])
    assert len(set(registered)) == len(registered), "one name of two kinds"


def test_dir_shows_what_a_user_wants_and_nothing_else() -> None:
    assert dir(fedquilt) == sorted([*fedquilt.__all__, *NAMESPACES, "__version__"])


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_namespaces_hold_what_they_list(namespace: str) -> None:
    module = getattr(fedquilt, namespace)
    assert dir(module) == sorted(module.__all__)
    for name in module.__all__:
        assert not isinstance(getattr(module, name), ModuleType)
    with pytest.raises(AttributeError, match=f"module 'fedquilt.{namespace}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


FIRST = [
    "import fedquilt.methods.fed_sgd",
    "from fedquilt.methods import fed_sgd",
    "import fedquilt.base.registry; fedquilt.base.registry.methods['fed_sgd']",
    "from fedquilt import *",
]
ASK = f"""
import os, torch
for first in {FIRST!r}:
    if os.fork() == 0:
        exec(first)
        import fedquilt as fq
        print(first, fq.methods.fed_sgd.__name__, fq.fed_sgd is fq.methods.fed_sgd)
        break
    os.wait()
"""


def test_a_name_is_its_function_whatever_is_imported_first() -> None:
    """A function and its file have one name, and Python puts the file in the package when it is imported.

    Each in a fork of a process that has imported PyTorch, which takes seconds, and nothing of the package.
    """
    ended = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [f"{first} fed_sgd True" for first in FIRST]


@pytest.mark.parametrize(
    "ask", ["import fedquilt", "import fedquilt; dir(fedquilt), dir(fedquilt.models), fedquilt.datasets.__all__"]
)
def test_names_are_known_without_pytorch(ask: str) -> None:
    ask = f"{ask}\nimport sys; print(sorted({{'torch', 'numpy', 'pydantic'}} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize(("kind", "name"), REGISTERED)
def test_summary_is_one_sentence(kind: str, name: str) -> None:
    summary = KINDS[kind].summary(name)
    rest = (inspect.getdoc(KINDS[kind][name]) or "").split("\n")[1:]
    assert summary.endswith(".")
    assert rest == [] or rest[0] == "", "the first line is the whole sentence"


@pytest.mark.parametrize("name", list(registry.methods))
def test_methods_name_their_paper(name: str) -> None:
    assert "20" in registry.methods.summary(name)


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_public_names_are_documented(name: str, value: object) -> None:
    documentation = inspect.getdoc(value) or ""
    assert documentation.split("\n")[0].endswith(".")
    assert ">>> " in documentation or not inspect.isfunction(value)
