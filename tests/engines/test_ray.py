"""The `ray` engine, as far as it can be tested without a cluster, and all of `ray_cluster.py` in a network namespace."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedquilt
from fedquilt.base.errors import MissingExtraError
from fedquilt.engines.cluster.connection import ClusterError

NAMESPACE = ["unshare", "-n", "-p", "-f", "--mount-proc", "--kill-child"]
"""A network with nothing but loopback, and processes that end with the first of them."""

INSTALLED = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="Ray is not installed (pip install 'fedquilt[ray]')")


def has_namespaces() -> bool:
    tools = shutil.which("unshare") and shutil.which("ip")
    tried = [*NAMESPACE, "ip", "link", "set", "lo", "up"]
    return bool(tools) and subprocess.run(tried, check=False, capture_output=True).returncode == 0


needs_namespace = pytest.mark.skipif(not has_namespaces(), reason="no network namespace can be made here")


def inside(*command: str, seconds: float = 170.0) -> subprocess.CompletedProcess[str]:
    """Run a command where only loopback exists; all that it starts ends with it."""
    up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    return subprocess.run([*NAMESPACE, *up], check=False, capture_output=True, text=True, timeout=seconds)


@needs_ray
@needs_namespace
def test_the_engine_on_a_local_cluster():
    file = Path(__file__).with_name("ray_cluster.py")
    ended = inside(sys.executable, "-m", "pytest", str(file), "-x", "-p", "no:cacheprovider", "--timeout", "160")
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
def test_an_address_where_no_cluster_is_is_refused_within_seconds(monkeypatch):
    """Nobody listens there, or somebody who is no cluster: Ray itself would wait for minutes."""
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
