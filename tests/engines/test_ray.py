"""The `ray` engine, as far as it can be tested without a cluster, and all of `ray_cluster.py` in a network namespace."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedquilt
from fedquilt.base.errors import MissingExtraError, SpecError
from fedquilt.engines.cluster import connection
from fedquilt.engines.cluster.connection import Cluster, ClusterError, _init, require_free

APART = ["-n", "-p", "-f", "--mount-proc", "--kill-child"]
"""A network with nothing but loopback, and processes that end with the first of them."""

INSTALLED = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="Ray is not installed (pip install 'fedquilt[ray]')")


def namespace() -> list[str] | None:
    """The command that makes a namespace here: as root, or as a user who is root there alone; None: neither can be."""
    for command in (["unshare", *APART], ["unshare", "-r", *APART]) if shutil.which("unshare") else ():
        up = [*command, "sh", "-c", "ip link set lo up"]
        if subprocess.run(up, check=False, capture_output=True).returncode == 0:
            return command
    return None


NAMESPACE = namespace()
needs_namespace = pytest.mark.skipif(NAMESPACE is None, reason="no network namespace can be made here (unshare, ip)")


def inside(*command: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command where only loopback exists; all that it starts ends with it."""
    assert NAMESPACE is not None
    up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    return subprocess.run([*NAMESPACE, *up], check=False, capture_output=True, text=True, timeout=seconds)


@needs_ray
@needs_namespace
@pytest.mark.timeout(600)
def test_the_engine_on_a_local_cluster():
    """It takes under a minute of CPU, and on a busy machine as long as that takes."""
    file = Path(__file__).with_name("ray_cluster.py")
    command = [sys.executable, "-m", "pytest", str(file), "-x", "-p", "no:cacheprovider", "--timeout", "300"]
    ended = inside(*command, seconds=590)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]


def opening(address, **how):
    return fedquilt.ray(address=address, **how).open(None)


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedquilt\[ray\]'"), opening("local"):
        pass


@needs_ray
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nowhere", "neither"),
        ("127.0.0.1:99999", "neither"),
        ("auto", "no Ray cluster was started on this machine"),
        ("192.0.2.1:6379", "is on the network, and no token is set here"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused_at_once(address, words, monkeypatch, tmp_path):
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ClusterError, match=words), opening(address):
        pass


@needs_ray
@pytest.mark.parametrize("variable", ["RAY_TMPDIR", "TMPDIR"])
def test_the_cluster_that_was_last_started_is_found_where_ray_notes_it(variable, monkeypatch, tmp_path):
    for name in ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1\n")
    with pytest.raises(ClusterError, match=r"there is no cluster at 127\.0\.0\.1:1 "), opening("auto"):
        pass


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"resources": {"disk": 0.0}}, "resources: disk = 0: a worker takes more than nothing"),
        ({"resources": {"disk": 1.5}}, "disk: 1.5 of it: a worker takes a whole number, or a part of one"),
        ({"resources": {"CPU": 2.0}}, "resources: every worker takes one CPU"),
        ({"gpus": 1.5}, "GPU: 1.5 of it: a worker takes a whole number, or a part of one"),
    ],
)
def test_what_no_worker_can_take_is_refused(how, words):
    with pytest.raises(SpecError, match=words):
        fedquilt.ray(**how)


class TwoHalves(Cluster):
    """Two nodes, each with half of a CPU free."""

    def free(self):
        return [{"CPU": 0.5, "disk": 2.0}, {"CPU": 0.5}]


def test_what_is_free_has_to_be_free_on_one_node(monkeypatch):
    """No actor would ever start, although a whole CPU is free."""
    monkeypatch.setattr("fedquilt.engines.cluster.connection.FREE", 0.0)
    there = TwoHalves("127.0.0.1:6379", SimpleNamespace(cluster_resources=lambda: {"CPU": 4.0}))
    assert there.room({"CPU": 0.5}) == 2
    assert there.room({"CPU": 0.25, "disk": 1.0}) == 2
    with pytest.raises(ClusterError, match=r"1 CPU \(at most 0.5 free on a node, 4 in all\)"):
        require_free(there, {"CPU": 1.0})


@needs_ray
def test_the_file_for_a_cloud_is_one_that_ray_takes():
    util, yaml = (importlib.import_module(name) for name in ("ray.autoscaler._private.util", "yaml"))
    text = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    (file,) = re.findall(r"```yaml\n(# cluster.yaml.*?)```", text, re.DOTALL)
    util.validate_config(util.prepare_config(yaml.safe_load(file)))


class OtherVersion:
    """Ray as it answers where the cluster has another version."""

    def is_initialized(self):
        return False

    def init(self, **how):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.59.0\n    Python: 3.11.7")

    def shutdown(self):
        pass


def test_a_cluster_of_another_version_is_refused_in_one_line():
    with pytest.raises(ClusterError) as refused:
        _init(OtherVersion(), address="127.0.0.1:6379")
    assert "started with: Ray: 2.59.0 Python: 3.11.7; every node and this machine need the same versions" in str(
        refused.value
    )


@needs_ray
def test_an_address_where_no_cluster_is_is_refused_within_seconds(monkeypatch):
    """Nobody listens there, or somebody who is no cluster: Ray itself would wait for minutes."""
    assert connection.ANSWER + connection.HEALTH < 30
    monkeypatch.setattr(connection, "HEALTH", 3.0)
    began = time.monotonic()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"there is no cluster at {address}"), opening(address):
            pass
        listening.listen()
        with pytest.raises(ClusterError, match="does not answer as a Ray cluster"), opening(address):
            pass
    assert time.monotonic() - began < 30


@needs_ray
@needs_namespace
@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", ["ray_cluster.py", "ray_two_nodes.py"])
def test_the_engine_on_real_clusters(file):
    """Two raylets, every method, and deaths of actors, of a node and of the head: takes minutes."""
    path = Path(__file__).with_name(file)
    ended = inside(
        sys.executable, "-m", "pytest", str(path), "-p", "no:cacheprovider", "-m", "thorough", "-s", seconds=3500
    )
    print(ended.stdout[-6000:])
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
