"""A run is resumed where its own code is what it was, in whatever process, and refused where it was edited."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import every_method
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.base.errors import RunError
from fedquilt.experiment.fingerprint import fingerprint
from fedquilt.experiment.own_code import own_code
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


def go(folder: Path, rounds: int) -> str:
    environment = os.environ | {"PYTHONPATH": str(Path(fedquilt.__file__).parents[1])}
    command = [sys.executable, "own.py", str(rounds)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() if done.returncode == 0 else done.stderr


def write(folder: Path, script: str = SCRIPT, helper: str = HELPER) -> None:
    (folder / "own.py").write_text(script)
    (folder / "helper.py").write_text(helper)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    write(tmp_path)
    assert len(go(tmp_path, 1)) == 64
    return tmp_path


def test_an_own_method_with_an_object_of_the_default_repr_is_resumed(begun: Path) -> None:
    digest = go(begun, 3)
    (begun / "run").rename(begun / "resumed")
    assert digest == go(begun, 3)


EDITS = {
    "forward": ("return self.linear(x) * self.gain", "return self.linear(x) * self.gain + 0"),
    "an attribute of the model": ("self.gain = nn.Linear(2, 2), 1.0", "self.gain = nn.Linear(2, 2), 2.0"),
    "a transform": ("* SCALE for name", "/ SCALE for name"),
    "what an object holds": ("Factor(0.5)", "Factor(0.25)"),
    "a constant": ("SCALE = 1.0", "SCALE = 1.5"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_run_is_not_resumed(edit: str, begun: Path) -> None:
    write(begun, SCRIPT.replace(*EDITS[edit]))
    assert "holds a run of another federation" in go(begun, 3)


def test_neither_is_one_whose_helpers_were_edited(begun: Path) -> None:
    write(begun, helper=HELPER.replace("d * value", "value * d"))
    assert "the source of your own model or method, may have changed since" in go(begun, 3)


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
