"""A run is resumed where its own code is what it was, in whatever process, and refused where it was edited."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import every_method
import pytest
import torch
from torch import nn
from warm_process import WarmProcess

import fedquilt
from fedquilt.algorithm.metric import Metric
from fedquilt.base.errors import RunError
from fedquilt.data.data import Data
from fedquilt.experiment.fingerprint import fingerprint
from fedquilt.experiment.own_code import own_code
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.simulate.simulation import combined

SCRIPT = '''
import sys
from dataclasses import replace
import helper
import numpy as np
import torch
from torch import nn
import fedquilt
from fedquilt.algorithm.transform import Transform, chain, stateless

SCALE = 1.0


class Factor:
    """Holds a number, and has the default repr."""

    def __init__(self, value):
        self.value = value


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.gain = nn.Linear(2, 2), 1.0

    def forward(self, x):
        return self.linear(x) * self.gain


def scaled(factor):
    def update(direction, state, at):
        return {name: helper.times(d, factor.value) * SCALE for name, d in direction.items()}, state

    return Transform(stateless, update)


x = np.random.default_rng(0).normal(size=(60, 2)).astype("float32")
y = (x[:, 0] > 0).astype("int64")
data = fedquilt.arrays(x[:40], y[:40], x[40:], y[40:])
base = fedquilt.fed_avg(lr=0.5, fraction=1.0)
method = replace(base, local=chain(scaled(Factor(0.5)), base.local))
torch.manual_seed(0)
result = fedquilt.train(
    Net(), data, fedquilt.iid(y[:40], clients=4), method, int(sys.argv[1]), engine=fedquilt.inline(), out="run"
)
print(result.digest)
'''
HELPER = "def times(d, value):\n    return d * value\n"


Go = Callable[[Path, int], str]


@pytest.fixture(scope="module")
def go(warm_process: WarmProcess) -> Go:
    """Run the script in a folder, and return the digest that it prints, or what is said of an error."""

    def going(folder: Path, rounds: int) -> str:
        process = warm_process.start("own.py", str(rounds), folder=folder)
        out, err = process.communicate()
        return out.strip() if process.returncode == 0 else err

    return going


def write(folder: Path, script: str = SCRIPT, helper: str = HELPER) -> None:
    (folder / "own.py").write_text(script)
    (folder / "helper.py").write_text(helper)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, go: Go) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    write(folder)
    assert len(go(folder, 1)) == 64
    return folder


@pytest.fixture
def begun(once: Path, tmp_path: Path) -> Path:
    """The folder of a script, with a run of one round."""
    return Path(shutil.copytree(once, tmp_path, dirs_exist_ok=True))


def test_an_own_method_with_an_object_of_the_default_repr_is_resumed(begun: Path, go: Go) -> None:
    """In a process that has it elsewhere in memory, which no fork of the first one's parent does."""
    environment = os.environ | {"PYTHONPATH": str(Path(fedquilt.__file__).parents[1])}
    command = [sys.executable, "own.py", "3"]
    resumed = subprocess.run(
        command, cwd=begun, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    (begun / "run").rename(begun / "resumed")
    assert resumed.stdout.strip() == go(begun, 3)


EDITS = {
    "forward": ("return self.linear(x) * self.gain", "return self.linear(x) * self.gain + 0"),
    "an attribute of the model": ("self.gain = nn.Linear(2, 2), 1.0", "self.gain = nn.Linear(2, 2), 2.0"),
    "a transform": ("* SCALE for name", "/ SCALE for name"),
    "what an object holds": ("Factor(0.5)", "Factor(0.25)"),
    "a constant": ("SCALE = 1.0", "SCALE = 1.5"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_run_is_not_resumed(edit: str, begun: Path, go: Go) -> None:
    write(begun, SCRIPT.replace(*EDITS[edit]))
    assert "holds a run of another federation" in go(begun, 3)


def test_neither_is_one_whose_helpers_were_edited(begun: Path, go: Go) -> None:
    write(begun, helper=HELPER.replace("d * value", "value * d"))
    assert "or a value that your code refers to may have changed since" in go(begun, 3)


# What own code refers to, of whatever kind: an edit of it is noticed, and nothing else is.

NET = """
import collections, dataclasses, enum, functools, random, threading
import numpy as np, torch
{before}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        {body}
"""
MODULE = "FACTOR = 1.0\ndef f(x):\n    return x * FACTOR\n"
REFERENCES = {
    "a list": ("W = [1.0]", "return x * W[0]"),
    "a tuple": ("W = (1.0,)", "return x * W[0]"),
    "a table": ("W = {'a': {'b': 1.0}}", "return x * W['a']['b']"),
    "a set": ("W = {1.0}", "return x * max(W)"),
    "a tensor": ("W = torch.tensor(1.0)", "return x * W"),
    "a tensor in bfloat16": ("W = torch.full((2000,), 1.0, dtype=torch.bfloat16)", "return x * W[0]"),
    "an array": ("W = np.full(2000, 1.0)", "return x * W[0]"),
    "an array of objects": ("W = np.array([[1.0], None], dtype=object)", "return x * W[0][0]"),
    "a queue of a package": ("W = collections.deque([torch.full((2000,), 1.0)])", "return x * W[0][0]"),
    "a generator of a package": ("W = np.random.default_rng(int(1.0))", "return x * W.normal()"),
    "a partial": ("def g(s, x): return s * x\nW = functools.partial(g, 1.0)", "return W(x)"),
    "a lambda": ("W = lambda x: x * 1.0", "return W(x)"),
    "a table of functions": ("W = {'a': lambda x: x * 1.0}", "return W['a'](x)"),
    "the order of functions": ("def f(x): return x\ndef g(x): return 2\nW = [f, g, f][int(1.0) :]", "return W[0](x)"),
    "a cached function": ("@functools.lru_cache\ndef g(): return 1.0", "return x * g()"),
    "a function under no_grad": ("@torch.no_grad()\ndef g(): return 1.0", "return x * g()"),
    "a decorator": (
        "def d(f):\n    @functools.wraps(f)\n    def g(x): return f(x) * 1.0\n    return g\n@d\ndef h(x): return x",
        "return h(x)",
    ),
    "an attribute of a function": ("def g(x): return x * g.k\ng.k = 1.0", "return g(x)"),
    "a default": ("K = 1.0\ndef g(x, k=K): return x * k", "return g(x)"),
    "a chain": (
        "K = [1.0]\n"
        + "\n".join(f"def g{n}(x): return g{n + 1}(x)" for n in range(600))
        + "\ndef g600(x): return K[0]",
        "return g0(x)",
    ),
    "an object": ("class S:\n    def __init__(self, v): self.v = v\nW = S(1.0)", "return x * W.v"),
    "an object with slots": (
        "class S:\n    __slots__ = 'v'\n    def __init__(self, v): self.v = v\nW = S(1.0)",
        "return x * W.v",
    ),
    "a bound method": (
        "class S:\n    def __init__(self, v): self.v = v\n    def f(self, x): return x * self.v\nW = S(1.0).f",
        "return W(x)",
    ),
    "a named tuple's method": (
        "class S(collections.namedtuple('S', 'v')):\n    def f(self): return self.v * 1.0\nW = S(3)",
        "return x * W.f()",
    ),
    "a value in a class": ("K = [1.0]\nclass S:\n    k = K", "return x * S.k[0]"),
    "a property": ("K = [1.0]\nclass S:\n    @property\n    def k(self): return K[0]\nW = S()", "return x * W.k"),
    "a dataclass": (
        "K = [1.0]\n@dataclasses.dataclass\nclass S:\n    k: list = dataclasses.field(default_factory=lambda: K)",
        "return x * S().k[0]",
    ),
    "an enumeration": ("class S(enum.Enum):\n    A = 1.0\nW = S.A", "return x * W.value"),
    "a table that holds itself": ("W = {'k': 1.0}\nW['self'] = W", "return x * W['self']['k']"),
    "a module": ("import pkg.mod", "return pkg.mod.f(x)"),
    "a module under a name": ("from pkg import mod", "return mod.f(x)"),
    "a module as a value": ("from pkg import mod", "m = mod; return m.f(x)"),
    "an import inside": ("", "from pkg.mod import f; return f(x)"),
    "an import of a module inside": ("", "import pkg.mod; return pkg.mod.f(x)"),
    "an import from a package inside": ("", "from pkg import mod as m; return m.f(x)"),
}


def written(folder: Path, before: str, body: str, module: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what stands for a model of these files, as in a process of its own."""
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "mod.py").write_text(module)
    (folder / "net.py").write_text(NET.format(before=before, body=body))
    with monkeypatch.context() as patched:
        patched.syspath_prepend(folder)
        importlib.invalidate_caches()
        try:
            return own_code(importlib.import_module("net").Net())
        finally:
            for name in ("net", "pkg", "pkg.mod"):
                sys.modules.pop(name, None)


@pytest.mark.parametrize("kind", REFERENCES)
def test_an_edit_of_what_own_code_refers_to_is_noticed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, body = REFERENCES[kind]
    module = MODULE if "1.0" not in before else ""
    texts = [
        written(tmp_path / name, before.replace("1.0", value), body, module.replace("1.0", value), monkeypatch)
        for name, value in (("first", "1.0"), ("same", "1.0"), ("edited", "2.0"))
    ]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_what_own_code_refers_to_and_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"holds an object of _thread\.lock, which net\.Net\.forward refers to as LOCK.* an attribute `version`"
    with pytest.raises(RunError, match=message):
        written(tmp_path / "one", "LOCK = threading.Lock()", "LOCK; return x", "", monkeypatch)
    before = "LOCK = threading.Lock()\ndef f(x):\n    LOCK\n    return x\nf.version = 1"
    assert "net.f version 1" in written(tmp_path / "two", before, "return f(x)", "", monkeypatch)


def test_a_name_that_is_an_attribute_is_not_taken_for_a_global_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        written(tmp_path / value, f"linear = threading.{value}()", "return self.linear(x)", "", monkeypatch)
        for value in ("Lock", "Event")
    ]
    assert texts[0] == texts[1]


def test_other_metrics_are_another_run(blobs: Data, unbalanced: Partition) -> None:
    factor = 1.0

    def scaled(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs.argmax(1) == targets).float() * factor

    def of(*metrics: Metric) -> str:
        torch.manual_seed(0)
        return fingerprint(Federation.of(nn.Linear(8, 3), blobs, unbalanced, fedquilt.fed_avg(), 1, metrics))

    prints = {of(Metric("scaled", scaled)), of(Metric("other", scaled)), of()}
    assert len(prints) == 3
    assert of(Metric("scaled", scaled)) in prints
    factor = 2.0
    assert of(Metric("scaled", scaled)) not in prints


class Sealed:
    """Cannot be written down: its content has an address in its text."""

    def __init__(self) -> None:
        self.inside = iter([1])


class Versioned(Sealed):
    version = 2


def test_what_cannot_be_written_down_is_refused_with_what_to_do() -> None:
    with pytest.raises(RunError, match=r"object of builtins\.list_iterator.*an attribute `version`"):
        own_code(partial(print, Sealed()))
    assert own_code(Versioned()).endswith("Versioned version 2")
    made: dict[str, object] = {}
    exec("def typed(x):\n    return x", made)
    with pytest.raises(RunError, match=r"the source of .*typed cannot be read.*put it into a file"):
        own_code(made["typed"])
    made["typed"].version = "1"  # type: ignore[attr-defined]
    assert own_code(made["typed"]).endswith("typed version '1'")


def fingerprints() -> dict[str, str]:
    torch.manual_seed(0)
    x, y = torch.randn(60, 8), torch.arange(60) % 3
    data = fedquilt.arrays(x[:40], y[:40], x[40:], y[40:])
    module = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.1), nn.Linear(6, 3))
    module.classifier_layer = "2"  # type: ignore[assignment]
    held = fedquilt.iid(y[:40].numpy(), clients=4)
    found = {}
    for name in every_method.METHODS:
        simulation = combined(every_method.simulated(name))
        federation = Federation.of(module, data, held, every_method.made(name), 1, simulation=simulation)
        found[name] = fingerprint(federation)
    return found


def test_every_method_has_the_same_fingerprint_in_every_process() -> None:
    here = Path(__file__).parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parent), str(Path(fedquilt.__file__).parents[1])])
    }
    command = [sys.executable, "-c", "import test_own_code; print(test_own_code.fingerprints())"]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert other.stdout.strip() == str(fingerprints())
    assert len(set(fingerprints().values())) == len(every_method.METHODS)


def test_a_layer_with_other_arguments_is_another_model(blobs, unbalanced) -> None:
    """Of the same parameters: PyTorch's, and of the user's own."""

    def of(*layers: nn.Module) -> str:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 3), *layers)
        return fingerprint(Federation.of(module, blobs, unbalanced, fedquilt.fed_avg(), 1))

    assert of(nn.Dropout(0.1)) == of(nn.Dropout(0.1))
    assert len({of(nn.Dropout(0.1)), of(nn.Dropout(0.2)), of(nn.Tanh()), of()}) == 4
