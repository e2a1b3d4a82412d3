"""The `ray` engine on one local cluster, whose actors all of these tests use one after the other.

`test_ray.py` runs this file in a network namespace of its own, where nothing but loopback exists.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.algorithm.state import ClientStore
from fedquilt.algorithm.updates import PartialSum, one_by_one
from fedquilt.base.errors import WorkerError
from fedquilt.engines.cluster.actors import Actors, Needs
from fedquilt.engines.cluster.connection import ClusterError, _require_own_node, cluster, require_free
from fedquilt.engines.cluster.facts import Facts
from fedquilt.engines.cluster.nodes import differing, require_alike, survey
from fedquilt.engines.execution import Execution
from fedquilt.experiment.run import resume, run
from fedquilt.experiment.sweeping.on_cluster import ClusterExecutor
from fedquilt.round.partial import summable
from fedquilt.round.plan import plan

pytestmark = pytest.mark.filterwarnings("ignore:actor .* died:RuntimeWarning")

METHODS = {
    "fed_avg": lambda: fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8),
    "fed_avg_m": lambda: fedquilt.fed_avg_m(lr=0.1, fraction=0.5, batch=8, server_momentum=0.5),
    "scaffold": lambda: fedquilt.scaffold(fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=8)),
    "fed_avg_r": lambda: fedquilt.fed_avg_r(fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8)),
}


@pytest.fixture(scope="module", autouse=True)
def there():
    with cluster("local", 2) as found:
        yield found


def trained(engine, module, data, partition, method, rounds=2):
    return fedquilt.train(module, data, partition, method, rounds=rounds, engine=engine)


def timeless(result):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in result.history]


@pytest.mark.parametrize("name", METHODS)
def test_four_methods_give_the_bits_and_the_records_of_inline(name, there, blobs, unbalanced, smooth):
    method = METHODS[name]()
    expected = trained(fedquilt.inline(), smooth, blobs, unbalanced, method)
    for workers, sums in ((2, True), (1, False)):
        found = trained(fedquilt.ray(workers=workers, sums=sums), smooth, blobs, unbalanced, method)
        assert found.digest == expected.digest
        assert timeless(found) == timeless(expected)


def test_blocks_give_the_bits_of_vectorised_with_sums_and_without(blobs, unbalanced, smooth):
    method = METHODS["fed_avg"]()
    expected = trained(fedquilt.vectorised(block=2, workers=1), smooth, blobs, unbalanced, method)
    for sums in (True, False):
        found = trained(fedquilt.ray(workers=2, block=2, sums=sums), smooth, blobs, unbalanced, method)
        assert found.digest == expected.digest


def test_batch_norm_and_whole_number_buffers(blobs, unbalanced):
    module = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8, drop_last=True)
    found = [
        trained(engine, module, blobs, unbalanced, method).digest
        for engine in (fedquilt.inline(), fedquilt.ray(workers=2))
    ]
    assert found[0] == found[1]


def test_updates_come_as_sums_and_what_is_taken_belongs_to_the_taker(federate):
    """Six clients on one worker are one task, and one sum; asked for singly, each can be overwritten once it was taken."""
    federation = federate(METHODS["fed_avg"]())
    group = federation.start().groups[0]
    planned = plan(federation.algorithm, group, federation.population, 1)
    with fedquilt.ray(workers=1).open(federation) as session:
        object.__setattr__(session.grouping, "seconds_per_client", 0.001)
        summed = replace(planned, sums=summable(federation.server, planned, observed=False))
        (answer,) = session.run(summed, group.state, ClientStore())
        assert isinstance(answer, PartialSum)
        assert sorted(answer.slots) == sorted(planned.slots)
        for _ in range(2):
            found = {}
            for update in one_by_one(session.run(planned, group.state, ClientStore())):
                found[update.slot] = float(update.delta.sum())
                update.delta.fill_(float("nan"))
            assert sorted(found) == sorted(planned.slots)
            assert not any(math.isnan(value) for value in found.values())


class Deadly(nn.Module):
    """Kills its process on the inputs of one client, marked by a value: always, or once."""

    def __init__(self, once: str = ""):
        super().__init__()
        self.linear, self.once = nn.Linear(8, 3), once

    def forward(self, x):
        if self.training and x.max() > 1e6:
            if not self.once:
                os.kill(os.getpid(), signal.SIGKILL)
            elif not Path(self.once).exists():
                Path(self.once).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.linear(x.clamp(-9, 9))


def marked(blobs, unbalanced, client=3):
    x = blobs.train.x.clone()
    x[unbalanced.client(client)[0]] = 1e7
    return replace(blobs, train=replace(blobs.train, x=x))


def test_a_killed_actor_changes_nothing(blobs, unbalanced, tmp_path):
    data, method = marked(blobs, unbalanced), METHODS["fed_avg"]()
    flag = tmp_path / "died"
    torch.manual_seed(0)
    module = Deadly(str(flag))
    with pytest.warns(RuntimeWarning, match="died"):
        found = trained(fedquilt.ray(workers=2), module, data, unbalanced, method)
    assert flag.exists()
    assert found.digest == trained(fedquilt.inline(), module, data, unbalanced, method).digest


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
def test_a_client_that_kills_its_actors_is_named_and_left_out(blobs, unbalanced):
    data, method = marked(blobs, unbalanced), METHODS["fed_avg"]()
    found = trained(fedquilt.ray(workers=1), Deadly(), data, unbalanced, method, rounds=1)
    (fault,) = found.history.records[0]["dropped"]
    assert (fault["client"], fault["kind"]) == (3, "died")
    assert fault["reason"].startswith("3 actors died on it (its process ended)")


def test_a_run_goes_on_with_another_engine(tmp_path):
    tables = {
        "run": {"rounds": 2},
        "data": {"name": "digits"},
        "partition": {"name": "iid", "clients": 10},
        "model": {"name": "softmax_regression"},
        "method": {"name": "fed_avg"},
    }
    cluster_engine, other = {"name": "ray", "workers": 2, "data_from": "spec"}, {"name": "processes", "workers": 2}
    whole = run(tables | {"run": {"rounds": 4}, "engine": {"name": "inline"}}, out=tmp_path / "whole").result.digest
    for first, second in (
        (cluster_engine, ["engine.name=processes"]),
        (other, ["engine.name=ray", "engine.workers=2"]),
    ):
        folder = tmp_path / first["name"]
        run(tables | {"engine": first}, out=folder)
        assert resume(folder, rounds=4, sets=second).result.digest == whole


def test_a_sweep_uses_its_actors_from_trial_to_trial(there, tmp_path):
    """Three trials, one at a time: one host runs them all, with the results of a sweep on this machine."""
    tables = {
        "run": {"rounds": 2},
        "data": {"name": "digits"},
        "partition": {"name": "iid", "clients": 10},
        "model": {"name": "softmax_regression"},
        "method": {"name": "fed_avg"},
        "grid": {"method.lr": [0.1, 0.5, 1.0]},
    }
    for handles in there.idle.values():  # the host needs a CPU
        while handles:
            there.ray.kill(handles.pop())
    with closing(ClusterExecutor(there, tmp_path / "there")) as executor:
        found = fedquilt.sweep(tables, out=tmp_path / "there", jobs=1, executor=executor)
    here = fedquilt.sweep(tables, out=tmp_path / "here", jobs=1)
    assert [row.state for row in found.trials] == ["finished"] * 3
    assert executor.hosts == 1
    digests = [[fedquilt.resume(each.folder / row.name).result.digest for row in each.trials] for each in (found, here)]
    assert digests[0] == digests[1]


def test_nodes_are_asked_what_decides_bits_and_mixtures_are_refused(there, monkeypatch):
    (node,) = survey(there)
    assert node.facts == Facts.of_this_machine()
    other = replace(node, address="127.0.0.2", facts=replace(node.facts, capability="VSX"))
    broken = replace(node, address="127.0.0.3", facts=None, trouble="No module named 'fedquilt'")
    assert differing([node, node]) == []
    assert differing([node, other, broken]) == [
        "127.0.0.3: No module named 'fedquilt'",
        f"127.0.0.2: capability is VSX; on 127.0.0.1 it is {node.facts.capability}",
    ]
    monkeypatch.setattr("fedquilt.engines.cluster.nodes.survey", lambda cluster: [node, other])
    monkeypatch.setattr(there, "nodes", lambda: [1, 2])
    with pytest.raises(ClusterError, match="mixed = true"):
        require_alike(there, mixed=False)
    assert "capability is VSX" in require_alike(there, mixed=True)[0]["mixed"][0]


def test_the_command_line_says_what_nodes_have(command):
    answer = command("cluster", "check", "local")
    assert answer.code == 0
    assert f"{torch.__version__}" in answer.out
    assert "digests can be equal on the whole cluster" in answer.out


def test_what_is_wrong_with_a_cluster_is_said_at_once(there):
    began = time.monotonic()
    with pytest.raises(ClusterError, match="it can have one at a time"), cluster("127.0.0.1:1"):
        pass
    words = r"no node on which all is free that a worker needs: 3 CPU \(at most \d free on a node, 2 in all\)"
    with pytest.raises(ClusterError, match=words):
        require_free(there, {"CPU": 3.0})
    assert time.monotonic() - began < 30


def test_a_cluster_of_another_version_is_refused_by_name(there):
    """The cluster says that it has another version, as one would; all else about it is real."""
    store = importlib.import_module("ray._private.worker").global_worker.gcs_client
    key, space = b"CLUSTER_METADATA", b"cluster"
    known = store.internal_kv_get(key, namespace=space)
    store.internal_kv_put(key, json.dumps(json.loads(known) | {"ray_version": "2.0.0"}).encode(), True, namespace=space)
    try:
        command = [sys.executable, "-m", "fedquilt", "cluster", "check", there.ray.get_runtime_context().gcs_address]
        refused = subprocess.run(command, check=False, capture_output=True, text=True, timeout=150)
    finally:
        store.internal_kv_put(key, known, True, namespace=space)
    assert refused.returncode != 0
    (line,) = refused.stderr.splitlines()
    assert "2.0.0" in line
    assert there.ray.__version__ in line
    assert "need the same versions of Ray and Python" in line


def test_a_machine_that_is_no_node_of_the_cluster_is_told_so(there, monkeypatch):
    services, address = importlib.import_module("ray._private.services"), there.ray.get_runtime_context().gcs_address
    _require_own_node(there.ray, address)
    monkeypatch.setattr(services, "find_node_ids", set)  # no raylet runs here
    monkeypatch.setattr("fedquilt.engines.cluster.connection.ANSWER", 1.0)
    with pytest.raises(ClusterError, match="has no node on this machine"):
        _require_own_node(there.ray, address)


def test_a_run_that_gets_no_actor_ends(there, federate, monkeypatch):
    """Another's run took the last CPU after it was found free: what is never started is not waited for without end."""
    monkeypatch.setattr("fedquilt.engines.cluster.actors.STARVED", 1.0)
    federation = federate(METHODS["fed_avg"]())
    start = federation.server.start().groups[0].state
    with pytest.raises(WorkerError, match="no actor could be started"):
        Actors(there, federation.site, start, Execution(), Needs(resources=(("nowhere", 1.0),)))


def test_everything_listens_on_loopback():
    listening = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    addresses = {fields[1].split(":")[0] for fields in listening if fields[3] == "0A"}
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
