"""The `ray` engine on a real cluster of two raylets: every method, and what dies. Run by `test_ray.py`, in a namespace."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import every_method
import pytest
from every_method import METHODS
from two_raylets import ADDRESS, processes, two_raylets

import fedquilt
from fedquilt.engines.cluster.actors import Actors, Needs
from fedquilt.engines.cluster.connection import cluster
from fedquilt.engines.cluster.worker import Worker

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:actor .* died:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning"),
]

WAYS = [(workers, sums) for workers in (1, 2, 4) for sums in (True, False)]

SPEC = """
[run]
rounds = {rounds}
[data]
name = "digits"
[partition]
name = "iid"
clients = 60
[model]
name = "softmax_regression"
[method]
name = "fed_avg"
fraction = 1.0
epochs = 30
[engine]
name = "{engine}"
{more}
"""


@pytest.fixture(scope="module")
def nodes():
    with two_raylets() as found:
        yield found


@pytest.fixture(scope="class")
def connected(nodes):
    """A connection with four actors that are ready: a run of two rounds would be over before others are."""
    with cluster(ADDRESS) as found:
        actor = found.ray.remote(Worker).options(**Needs().options())
        found.idle[Needs()] = [actor.remote() for _ in range(4)]
        found.ray.get([handle.__ray_ready__.remote() for handle in found.idle[Needs()]])
        yield found


@pytest.fixture
def joined(monkeypatch):
    """How many actors each run had, in the end."""
    found, close = [], Actors.close

    def noting(actors):
        found.append(len(actors.facts))
        close(actors)

    monkeypatch.setattr(Actors, "close", noting)
    return found


class TestEveryMethod:
    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("name", METHODS)
    def test_it_has_the_bits_of_inline(self, connected, joined, blobs, unbalanced, smooth, name):
        """With 1, 2 and 4 actors, with and without partial sums."""
        assert len(connected.nodes()) == 2
        arguments = {} if not every_method.VARIANTS[name] else every_method.VARIANTS[name][0]
        method, simulated = every_method.made(name, **arguments), every_method.simulated(name, **arguments)
        if name == "krum":  # of half of the clients, too few would report for a round to be applied
            method = fedquilt.krum(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8), **arguments)

        def digest(engine):
            how = {"simulate": simulated} if simulated else {}
            return fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=engine, **how).digest

        expected = digest(fedquilt.inline())
        found = {way: digest(fedquilt.ray(address=ADDRESS, workers=way[0], sums=way[1])) for way in WAYS}
        assert found == dict.fromkeys(WAYS, expected)
        assert max(joined) == 4
        print(name, expected[:12], "as inline with", joined, "actors", flush=True)


def spec(folder: Path, engine: str, more: str = "", rounds: int = 6) -> Path:
    file = folder / f"{engine}.toml"
    file.write_text(SPEC.format(engine=engine, more=more, rounds=rounds))
    return file


def begin(folder: Path, name: str, rounds: int = 6) -> subprocess.Popen[str]:
    file = spec(folder, "ray", f'address = "{ADDRESS}"', rounds)
    command = [sys.executable, "-m", "fedquilt", "run", str(file), "--out", str(folder / name)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def rounds_of(folder: Path) -> int:
    file = folder / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def wait_for(folder: Path, rounds: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 240
    while rounds_of(folder) < rounds:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def digest_of(folder: Path) -> str:
    return fedquilt.resume(folder, sets=["engine.name=processes"]).result.digest


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inline")
    return fedquilt.run(spec(folder, "inline"), out=folder / "run").result.digest


@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", ["ray::Worker", "raylet"])
def test_what_is_killed_changes_nothing(nodes, expected, tmp_path, victim):
    """An actor, and the raylet of the second node: the run goes on by itself."""
    process = begin(tmp_path, "run")
    wait_for(tmp_path / "run", 2, process)
    nodes.kill(victim)
    said, _ = process.communicate(timeout=400)
    assert process.returncode == 0, said
    assert digest_of(tmp_path / "run") == expected
    print(victim, "killed: same digest")


@pytest.mark.timeout(600)
def test_a_node_that_joins_later_is_used(nodes, expected, tmp_path):
    """The second node is gone by now; another one joins in the middle of a run."""
    process = begin(tmp_path, "run", rounds=30)
    try:
        wait_for(tmp_path / "run", 2, process)
        before = len(processes("ray::Worker"))
        nodes.start()
        until = time.monotonic() + 120
        while len(processes("ray::Worker")) <= before:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    print("a node that joined is used")


@pytest.mark.timeout(600)
def test_when_the_head_dies_the_run_resumes(nodes, expected, tmp_path):
    process = begin(tmp_path, "run", rounds=6)
    wait_for(tmp_path / "run", 2, process)
    nodes.kill("gcs_server")
    process.communicate(timeout=300)
    assert process.returncode != 0
    assert 2 <= rounds_of(tmp_path / "run") < 6
    assert digest_of(tmp_path / "run") == expected
    print("head killed: the resumed run has the same digest")
