"""The nodes of a cluster: what each has, and whether all of them give the same bits."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedquilt.base.text import visible
from fedquilt.engines.cluster.connection import Cluster, ClusterError
from fedquilt.engines.cluster.facts import Facts, facts_of_node

ANSWER = 120.0
"""Seconds that nodes may take to say what they have: they may have to import PyTorch first."""


@dataclass(frozen=True)
class Node:
    """A node: its address, its CPUs and GPUs as Ray counts them, and its facts, or why there are none."""

    address: str
    cpus: float
    gpus: float
    facts: Facts | None
    trouble: str = ""

    def record(self) -> dict[str, Any]:
        """Return what is recorded with a run; addresses are not."""
        known = {} if self.facts is None else {"torch": self.facts.torch, "instruction_set": self.facts.capability}
        return {"cpus": self.cpus, "gpus": self.gpus} | known


def on_every_node(cluster: Cluster, function: Callable[..., object], *given: object) -> dict[str, Any]:
    """Call a function on every node; return what it returned, or raised, or a TimeoutError, by the nodes' ids."""
    ray = cluster.ray
    there: Any = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    task = ray.remote(function)
    asked = {}
    for node in (each["NodeID"] for each in cluster.nodes()):
        only = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there(node, soft=False))
        asked[node] = only.remote(*given)
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER)
    found: dict[str, Any] = {}
    for node, answer in asked.items():
        try:
            found[node] = ray.get(answer) if answer in ready else TimeoutError(f"did not answer in {ANSWER:g} s")
        except Exception as error:  # whatever a node cannot import
            found[node] = error
    return found


def survey(cluster: Cluster) -> list[Node]:
    """Ask every node what it has."""
    found, nodes = on_every_node(cluster, facts_of_node), []
    for node in cluster.nodes():
        answer, has = found.get(node["NodeID"], TimeoutError("has just joined")), node["Resources"]
        facts = answer if isinstance(answer, Facts) else None
        why = "" if facts is not None else visible(" ".join(str(getattr(answer, "cause", None) or answer).split()), 200)
        nodes.append(Node(node["NodeManagerAddress"], has.get("CPU", 0.0), has.get("GPU", 0.0), facts, why))
    return nodes


def differing(nodes: Sequence[Node]) -> list[str]:
    """Say in which ways nodes differ from the first one that answered, a line each."""
    known = [node for node in nodes if node.facts is not None]
    lines = [f"{node.address}: {node.trouble}" for node in nodes if node.facts is None]
    for node in known[1:]:
        assert known[0].facts is not None
        assert node.facts is not None
        for name, (first, other) in known[0].facts.differences(node.facts).items():
            lines.append(f"{node.address}: {name} is {other}; on {known[0].address} it is {first}")
    return lines


def require_alike(cluster: Cluster, mixed: bool) -> list[dict[str, Any]]:
    """Refuse nodes that may give other bits, unless they may be `mixed`; return what is recorded of the nodes."""
    if len(cluster.nodes()) == 1:  # it is like itself, and asking takes a while
        return [Node("", node["Resources"].get("CPU", 0.0), 0.0, None).record() for node in cluster.nodes()]
    nodes = survey(cluster)
    lines = differing(nodes)
    if lines and not mixed:
        raise ClusterError(
            "the cluster's nodes differ in what decides the last bits of a result:\n  "
            + "\n  ".join(lines)
            + "\nUse machines of one kind with the same versions, or set mixed = true to continue nevertheless"
        )
    return [node.record() | ({"mixed": lines} if lines else {}) for node in nodes]
