"""Small federations that many tests share; `sample_data` beside it can be imported by tests."""

from __future__ import annotations

import gc
import importlib
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from coverage import Coverage
from torch import nn

import fedquilt
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.data.data import Data
from fedquilt.engines.perform import perform
from fedquilt.engines.tasks import Reply
from fedquilt.experiment.sweeping import local
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.simulate.simulation import NOTHING, Simulation

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in what a shell starts in the background, and what tests start would inherit it: Ctrl-C is tested there.
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent))

from warm_process import Started, Trials, WarmProcess


def pytest_collection_finish() -> None:
    """Keep the garbage collector off what is there to stay: workers are forked by the hundred, and each would copy it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def measured_workers() -> Iterator[None]:
    """Under coverage, let workers save after every task which lines they ran: they end by a kill, which saves nothing."""

    def saving(*given: Any) -> Reply:
        reply = perform(*given)
        with suppress(Exception):  # a hostile client may have left nothing to save with
            measured = Coverage.current()
            assert measured is not None
            measured.save()
        return reply

    with pytest.MonkeyPatch.context() as patch:
        if Coverage.current() is not None:
            patch.setattr("fedquilt.engines.worker.perform", saving)
        yield


@pytest.fixture(scope="session")
def blobs() -> Data:
    """Three noisy clusters in eight dimensions: 240 examples to train on, 90 to test."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=2.0, size=(3, 8))
    y = np.arange(330) % 3
    x = (centres[y] + rng.normal(size=(330, 8))).astype(np.float32)
    return fedquilt.arrays(x[:240], y[:240], x[240:], y[240:], name="blobs")


@pytest.fixture(scope="session")
def unbalanced(blobs: Data) -> Partition:
    """Six clients of very different sizes, sorted by class within them."""
    order = np.argsort(blobs.train.y.numpy(), kind="stable")
    return Partition.by_sizes(order, np.array([5, 100, 17, 60, 38, 20]))


@pytest.fixture
def smooth() -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    module.classifier_layer = "2"  # type: ignore[assignment]
    return module


@pytest.fixture
def federate(blobs: Data, unbalanced: Partition, smooth: nn.Module) -> Callable[..., Federation]:
    """Make a federation on the small data; any part can be given."""

    def make(
        algorithm: Algorithm,
        module: nn.Module | None = None,
        data: Data | None = None,
        seed: int = 1,
        simulation: Simulation = NOTHING,
    ) -> Federation:
        return Federation.of(module or smooth, data or blobs, unbalanced, algorithm, seed, simulation=simulation)

    return make


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that compiles, without which a test is skipped; programs take two steps a call.

    The C++ compiler takes seconds for every step of a call. Two show what ten do: values that go from step to step.
    """
    from fedquilt.engines.compiling import trouble

    if trouble() is not None:
        pytest.skip(f"nothing can be compiled here: {trouble()}")
    monkeypatch.setattr("fedquilt.round.block.STEPS", 2)


@pytest.fixture(scope="session")
def warm_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    """Processes of the command line that start at once."""
    ready = WarmProcess(tmp_path_factory.mktemp("warm_process"))
    yield ready
    ready.close()


@pytest.fixture(autouse=True)
def quick_sweeps(warm_process: WarmProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process that a sweep's trials come from start at once."""

    def start(*_: Any, **__: Any) -> Trials:
        return warm_process.start_trials()

    if sys.platform == "linux":
        replaced = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
        monkeypatch.setattr(local, "subprocess", replaced)


@pytest.fixture
def bench(warm_process: WarmProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Call one of the programs in bench/ that kill others; what it starts begins at once."""

    def start(*words: str, folder: Path | None = None) -> Started:
        return warm_process.start(*words, folder=folder or tmp_path)

    def call(name: str, *words: str) -> None:
        monkeypatch.setattr("kills.start", start)
        monkeypatch.setattr(sys, "argv", [name, *words])
        importlib.import_module(name).main()

    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "bench")
    return call


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., object]:
    """Call the command line in a folder that holds spec.toml."""
    from command_line import SPEC, Answer

    from fedquilt.cli import app as cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    Path("spec.toml").write_text(SPEC)

    def call(*words: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["fedquilt", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, *capsys.readouterr())

    return call
